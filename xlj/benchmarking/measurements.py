"""What is measured: numbers with their peers', as lines, a Markdown table, and JSON."""

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
    """The size of a step, and how often each thing is measured."""

    rows: int
    length: int
    repeats: int


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One number, and what another library reached beside it."""

    what: str
    """Of bench's --what."""
    name: str
    value: float
    unit: str
    """A rate; or s or ms, of which less is better."""
    peer: str = ""
    peer_value: float | None = None
    """None where the peer is not installed, or there is none."""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the peer."""
        if self.peer_value is None:
            return None
        more = self.value / self.peer_value
        return 1 / more if self.unit == "s" else more

    @property
    def line(self) -> str:
        """It on one line."""
        text = f"{self.what} {self.name}: {number(self.value)} {self.unit}"
        if self.peer_value is not None and self.ratio is not None:
            text += f", {self.peer} {number(self.peer_value)}: {self.ratio:.1f} times as fast"
        return text + f" ({self.note})" * bool(self.note)


Measure = Callable[[Config, Size], Iterator[Measurement]]
"""What measures one thing of --what."""


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def median_seconds(call: Callable[[], PyTree], repeats: int) -> float:
    """The median of the times that a call takes, after one that is not counted."""
    call()
    times = timeit.repeat(lambda: jax.block_until_ready(call()), number=1, repeat=repeats)
    return statistics.median_high(times)


Given = ParamSpec("Given")
Result = TypeVar("Result")


def apart(
    function: Callable[Given, Result], *arguments: Given.args, **named: Given.kwargs
) -> Result:
    """The result of a function: on a CPU of a process of its own, which has the cores and no memory
    of what was measured before; else of this one, which has the device."""
    if jax.default_backend() != "cpu":
        return function(*arguments, **named)
    return in_child("measuring", function, *arguments, **named)


def peak_memory() -> int | None:
    """Bytes that this process held at most so far; None where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            held = next(line for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None
    return int(held.split()[1]) * 1024


def table(measured: Sequence[Measurement]) -> str:
    """A Markdown table, under the machine and the command."""
    lines = [
        " ".join(f"{name}: {value}." for name, value in machine().items() if name != "versions"),
        ", ".join(f"{name} {version}" for name, version in _versions().items()) + ".",
        "",
        f"    {_command()}",
        "",
        "| | | xlj | beside it | times as fast | |",
        "|---|---|---|---|---|---|",
    ]
    for m in measured:
        beside = "" if m.peer_value is None else f"{number(m.peer_value)} ({m.peer})"
        ratio = "" if m.ratio is None else f"{m.ratio:.1f}"
        cells = m.what, m.name, f"{number(m.value)} {m.unit}", beside, ratio, m.note
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def record(measured: Sequence[Measurement]) -> Record:
    """The same for programs."""
    found = [dataclasses.asdict(m) | {"ratio": m.ratio} for m in measured]
    return {"machine": machine(), "command": _command(), "measurements": found}


def machine() -> Record:
    """What it was measured on, and when."""
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
    found = {}
    for name in _VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _command() -> str:
    return shlex.join(["python", "-m", "xlj.bench", *sys.argv[1:]])
