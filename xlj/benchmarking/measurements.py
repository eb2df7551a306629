"""Measurements and their peers' values, as lines, a Markdown table, and JSON."""

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
    """The size of a step, and the number of repetitions of each measurement."""

    rows: int
    length: int
    repeats: int


@dataclasses.dataclass(frozen=True)
class Measurement:
    """A measured number, and the number of another library.

    Attributes:
      what: the name in --what of xlj.bench.
      unit: a rate, or a time (s, ms), where less is better.
      peer: the name of the other library.
      peer_value: None without a peer, or if it is not installed.
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
        """The speed relative to the peer."""
        if self.peer_value is None:
            return None
        more = self.value / self.peer_value
        return 1 / more if self.unit == "s" else more

    @property
    def line(self) -> str:
        """The measurement on one line."""
        text = f"{self.what} {self.name}: {number(self.value)} {self.unit}"
        if self.peer_value is not None and self.ratio is not None:
            text += f", {self.peer} {number(self.peer_value)}: {self.ratio:.1f} times as fast"
        return text + f" ({self.note})" * bool(self.note)


Measure = Callable[[Config, Size], Iterator[Measurement]]
"""A function that measures one item of --what."""


def number(value: float) -> str:
    """Formats a number with three significant digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def median_seconds(call: Callable[[], PyTree], repeats: int) -> float:
    """Returns the median time of a call, after one call that is not measured."""
    call()
    times = timeit.repeat(lambda: jax.block_until_ready(call()), number=1, repeat=repeats)
    return statistics.median_high(times)


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def in_own_process(
    function: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """Returns the result of a function, on CPUs from a new process.

    A new process has all cores and no memory in use by earlier measurements. On other devices the
    function runs in this process, which has the device.
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
    """Returns the machine, the command and a Markdown table."""
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
        peer = "" if m.peer_value is None else f"{number(m.peer_value)} ({m.peer})"
        ratio = "" if m.ratio is None else f"{m.ratio:.1f}"
        cells = m.what, m.name, f"{number(m.value)} {m.unit}", peer, ratio, m.note
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def record(measured: Sequence[Measurement]) -> Record:
    """Returns the machine, the command and the measurements as JSON."""
    values = [dataclasses.asdict(m) | {"ratio": m.ratio} for m in measured]
    return {"machine": machine(), "command": _command(), "measurements": values}


def machine() -> Record:
    """Returns the device, the number of cores, the date, and versions of libraries."""
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
