"""Formats measurements, and the values of other libraries, as lines, a Markdown table and JSON."""

import dataclasses
import datetime
import importlib.metadata
import os
import platform
import shlex
import statistics
import sys
import timeit
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

import jax

from xlj.config import Config
from xlj.contracts.arrays import PyTree
from xlj.io.json_file import Record
from xlj.io.processes import in_child

_VERSIONS = ("jax", "flax", "torch", "transformers", "simalign", "sentence-transformers")


class Size(NamedTuple):
    """The batch of a train step (rows, and tokens per row), and the repetitions of each
    measurement."""

    rows: int
    length: int
    repeats: int


@dataclasses.dataclass(frozen=True)
class Measurement:
    """A measured value of xlj, and the value of another library (the peer).

    Attributes:
      what: the group of the measurement, a value of --what of xlj.bench.
      name: the name within the group.
      unit: the unit of a rate, or s or ms for a time. For times, less is better. A measurement in
        ms has no peer.
      peer: the name of the other library.
      peer_value: the value of the other library; None if the library was not measured.
      note: further text for the reader.
    """

    what: str
    name: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The speed of xlj divided by the speed of the peer; None without a value of a peer."""
        if self.peer_value is None:
            return None
        speed_ratio = self.value / self.peer_value
        return 1 / speed_ratio if self.unit == "s" else speed_ratio

    @property
    def line(self) -> str:
        """The measurement as one printable line."""
        text = f"{self.what} {self.name}: {format_number(self.value)} {self.unit}"
        if self.peer_value is not None and self.ratio is not None:
            text += (
                f", {self.peer} {format_number(self.peer_value)}: {self.ratio:.1f} times as fast"
            )
        return text + f" ({self.note})" * bool(self.note)


Measure = Callable[[Config, Size], Iterator[Measurement]]
"""A function that measures one group of --what."""


def format_number(value: float) -> str:
    """Formats a number with three significant digits, or without decimals if it is 100 or more."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def median_seconds(call: Callable[[], PyTree], repeats: int) -> float:
    """Returns the median time of a function in seconds, after one call that is not measured.

    For an even number of repeats, it is the larger of the two middle times.
    """
    call()
    times = timeit.repeat(lambda: jax.block_until_ready(call()), number=1, repeat=repeats)
    return statistics.median_high(times)


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def in_own_process(
    function: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """Calls a function and returns the result. On CPUs, the call runs in a new process.

    In a new process, earlier measurements occupy no memory and no cores. On other devices the
    function runs in this process, because this process occupies the device.
    """
    if jax.default_backend() != "cpu":
        return function(*arguments, **named)
    return in_child("measuring", function, *arguments, **named)


def peak_memory() -> int | None:
    """Returns the peak memory of this process in bytes; None if the system does not report it."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            peak = next(line for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None
    return int(peak.split()[1]) * 1024


def table(measured: Sequence[Measurement]) -> str:
    """Returns Markdown: the machine, versions of libraries, the command, and a table of
    measurements."""
    lines = [
        " ".join(f"{name}: {value}." for name, value in machine().items() if name != "versions"),
        ", ".join(f"{name} {version}" for name, version in _versions().items()) + ".",
        "",
        f"    {_command()}",
        "",
        "| | | xlj | other library | times as fast | |",
        "|---|---|---|---|---|---|",
    ]
    for m in measured:
        peer = "" if m.peer_value is None else f"{format_number(m.peer_value)} ({m.peer})"
        ratio = "" if m.ratio is None else f"{m.ratio:.1f}"
        cells = m.what, m.name, f"{format_number(m.value)} {m.unit}", peer, ratio, m.note
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def record(measured: Sequence[Measurement]) -> Record:
    """Returns the machine, the command and the measurements as a JSON object."""
    values = [dataclasses.asdict(m) | {"ratio": m.ratio} for m in measured]
    return {"machine": machine(), "command": _command(), "measurements": values}


def machine() -> Record:
    """Returns the device, the number of cores, the date, and the versions of libraries."""
    device = jax.local_devices()[0]
    kind = _processor() if device.platform == "cpu" else device.device_kind
    return {
        "device": f"{jax.local_device_count()} x {kind}",
        "cores": os.cpu_count() or 0,
        "date": datetime.date.today().isoformat(),
        "versions": _versions(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = (line.partition(":")[2].strip() for line in lines if "model name" in line)
            return next(names, platform.machine())
    except OSError:
        return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    versions = {}
    for name in _VERSIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _command() -> str:
    return shlex.join(["python", "-m", "xlj.bench", *sys.argv[1:]])
