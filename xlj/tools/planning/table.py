"""Formats a plan as text."""

from collections.abc import Mapping, Sequence

from xlj.tools.planning.figures import Figures
from xlj.tools.planning.search import Trial
from xlj.tools.planning.topologies import Topology

_GIB = 2**30
_SHOWN_OPERATIONS = 10


def table(figures: Sequence[Figures], config_name: str, topology: Topology) -> str:
    """Returns a text with a section for each phase, and the days of the whole run."""
    chips = f"{topology.name}, {topology.size} chips"
    lines = [f"{config_name} on {chips}: the compiler's figures, the least time, and an estimate"]
    for phase in figures:
        lines += ["", *_phase(phase)]
    days = sum(phase.days for phase in figures)
    steps = sum(phase.steps for phase in figures)
    estimated = sum(phase.whole_steps * phase.estimated_seconds for phase in figures) / 86_400
    lines += ["", f"all {steps:,} steps: at least {days:,.1f} days; estimate {estimated:,.1f} days"]
    return "\n".join(lines)


def trials(tried: Sequence[Trial]) -> str:
    """Returns a table with a line for each trial of a search."""
    lines = ["   GiB/device    least time per step  maximum MFU"]
    for trial in tried:
        size = f"{trial.needed / _GIB:8.2f}" if trial.needed else "too much"
        times = "does not fit"
        if trial.figures and trial.fits:
            best = trial.figures
            times = f"{1e3 * best.step_seconds:10,.1f} ms, {best.bottleneck:<10} {_mfu(best):>7}"
        lines.append(f"  {size}       {times:<38} {trial.choice.flags()}")
    return "\n".join(lines)


def _phase(figures: Figures) -> list[str]:
    """Returns the lines of a phase."""
    memory, seconds, total = figures.memory, figures.seconds, figures.counts.xlj
    slower = figures.estimated_seconds / figures.step_seconds
    rows = ", ".join(f"{name} {rows} x {length}" for name, (rows, length) in figures.rows.items())
    sizes = {name: size for name, size in vars(memory).items() if name not in ("peak", "limit")}
    multiplied = sum(figures.products.values()) * figures.devices
    total_traffic = sum(figures.traffic.values())
    lines = [
        f"steps {figures.start:,} to {figures.start + figures.steps:,}: {rows}",
        f"  memory per device     {memory.peak / _GIB:.2f} GiB of {memory.limit / _GIB:.2f}"
        + ("" if memory.fits else ": DOES NOT FIT"),
        "    " + ", ".join(f"{name} {size / _GIB:.2f}" for name, size in sizes.items()),
        f"  operations per step   {figures.counts}",
        f"    the program computes {multiplied / total:.2f} times as many in products",
        f"  memory traffic        {total_traffic / 1e9:.1f} GB per device; largest operations:",
    ]
    for name, size in list(figures.traffic.items())[:_SHOWN_OPERATIONS]:
        lines.append(f"    {size / 1e9:8.2f} GB  {name}")
    lines.append(
        "  communication         (size of whole arrays; sent per device on fast and slow links)"
    )
    for each in figures.collectives:
        where = f"{each.devices} devices on {each.hosts} host{'s' * (each.hosts > 1)}"
        lines.append(
            f"    {each.bytes / 1e9:8.2f} GB  {each.kind} x {each.times:,.0f} among {where}: "
            f"{each.fast / 1e9:.2f} GB fast, {each.slow / 1e9:.2f} GB slow"
        )
    if not figures.collectives:
        lines.append("    none")
    lines += [
        f"  least time per step   {1e3 * figures.step_seconds:.1f} ms, limited by "
        f"{figures.bottleneck} ({_times(seconds)})",
        f"  at most               {_mfu(figures)} MFU, {figures.tokens_per_second:,.0f} tokens/s "
        f"({figures.tokens_per_second / figures.devices:,.0f} per chip); {figures.days:,.1f} days",
        f"  estimate per step     {1e3 * figures.estimated_seconds:.1f} ms, from rates measured on "
        f"an H100 ({_times(figures.estimate)})",
        f"  estimated             {_mfu(figures, slower)} MFU, "
        f"{figures.tokens_per_second / slower:,.0f} tokens/s; {figures.days * slower:,.1f} days",
    ]
    return lines


def _times(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {1e3 * value:.1f}" for name, value in seconds.items()) + " ms"


def _mfu(figures: Figures, slower: float = 1) -> str:
    """Formats the highest possible MFU; "no" for a step without gradients.

    Args:
      slower: the time of the step divided by the least time.
    """
    return "no" if figures.mfu is None else f"{figures.mfu / slower:.1%}"
