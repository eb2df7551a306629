"""A plan as text."""

from collections.abc import Mapping, Sequence

from xlj.planning.figures import Figures
from xlj.planning.search import Trial
from xlj.planning.topologies import Topology

_GIB = 2**30
_LARGEST = 10


def table(figures: Sequence[Figures], config_name: str, topology: Topology) -> str:
    """What people read: a part for each phase, and the days of the whole run."""
    chips = f"{topology.name}, {topology.size} chips"
    lines = [f"{config_name} on {chips}: the compiler's figures, the least time, and an estimate"]
    for found in figures:
        lines += ["", *_phase(found)]
    days = sum(found.days for found in figures)
    steps = sum(found.steps for found in figures)
    estimated = sum(found.whole_steps * found.estimated_seconds for found in figures) / 86_400
    lines += ["", f"all {steps:,} steps: {days:,.1f} days at least, {estimated:,.1f} estimated"]
    return "\n".join(lines)


def trials(tried: Sequence[Trial]) -> str:
    """A line for each trial of a search, the best first."""
    lines = ["   GiB a device  least time of a step  MFU at most"]
    for trial in tried:
        size = f"{trial.needed / _GIB:8.2f}" if trial.needed else "too much"
        times = "does not fit"
        if trial.figures and trial.fits:
            found = trial.figures
            times = f"{1e3 * found.step_seconds:10,.1f} ms, {found.bottleneck:<10} {_mfu(found):>7}"
        lines.append(f"  {size}       {times:<38} {trial.choice.flags()}")
    return "\n".join(lines)


def _phase(found: Figures) -> list[str]:
    memory, seconds, total = found.memory, found.seconds, found.operations.total
    slower = found.estimated_seconds / found.step_seconds
    rows = ", ".join(f"{name} {rows} x {length}" for name, (rows, length) in found.rows.items())
    parts = {name: size for name, size in vars(memory).items() if name not in ("peak", "limit")}
    by_part = {name: value for name, value in vars(found.operations).items() if value}
    share = ", ".join(f"{name} {value / total:.0%}" for name, value in by_part.items())
    multiplied = sum(found.products.values()) * found.devices
    moved = sum(found.traffic.values())
    lines = [
        f"steps {found.start:,} to {found.start + found.steps:,}: {rows}",
        f"  memory of a device    {memory.peak / _GIB:.2f} GiB of {memory.limit / _GIB:.2f}"
        + ("" if memory.fits else ": DOES NOT FIT"),
        "    " + ", ".join(f"{name} {size / _GIB:.2f}" for name, size in parts.items()),
        f"  operations of a step  {found.counts}",
        f"    {share}; the program multiplies {multiplied / total:.2f} times that",
        f"  traffic with memory   {moved / 1e9:.1f} GB a device, of which",
    ]
    for name, size in list(found.traffic.items())[:_LARGEST]:
        lines.append(f"    {size / 1e9:8.2f} GB  {name}")
    lines.append(
        "  sent between devices  (of whole arrays; what a device sends on each kind of link)"
    )
    for each in found.collectives:
        where = f"{each.devices} devices of {each.hosts} host{'s' * (each.hosts > 1)}"
        lines.append(
            f"    {each.bytes / 1e9:8.2f} GB  {each.kind} x {each.times:,.0f} among {where}: "
            f"{each.fast / 1e9:.2f} GB fast, {each.slow / 1e9:.2f} GB slow"
        )
    if not found.collectives:
        lines.append("    nothing")
    lines += [
        f"  least time of a step  {1e3 * found.step_seconds:.1f} ms, for its {found.bottleneck} "
        f"({_times(seconds)})",
        f"  so at most            {_mfu(found)} MFU, {found.tokens_per_second:,.0f} tokens/s "
        f"({found.tokens_per_second / found.devices:,.0f} a chip); {found.days:,.1f} days",
        f"  estimate of a step    {1e3 * found.estimated_seconds:.1f} ms, by rates measured on an "
        f"H100 ({_times(found.estimate)})",
        f"  so about              {_mfu(found, slower)} MFU, "
        f"{found.tokens_per_second / slower:,.0f} tokens/s; {found.days * slower:,.1f} days",
    ]
    return lines


def _times(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {1e3 * value:.1f}" for name, value in seconds.items()) + " ms"


def _mfu(found: Figures, slower: float = 1) -> str:
    """MFU at most, or of a step that takes so many times the least time; none for a step without
    gradients."""
    return "no" if found.mfu is None else f"{found.mfu / slower:.1%}"
