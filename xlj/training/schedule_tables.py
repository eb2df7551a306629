"""The schedule of a run for its readers: lines by step, a table of phases, and warnings."""

from collections.abc import Sequence

import numpy as np

from xlj.config import Phase
from xlj.data.rows import mixture
from xlj.data.rows.batches import Batches
from xlj.data.rows.draws import BLOCK
from xlj.data.rows.store import RowStore
from xlj.training.metrics import Line
from xlj.training.schedule import Schedule, batch_size, rows_to_train

_POINTS = 200  # number of evenly spaced steps with a line, besides the steps where values change
_MOST_SHARES = 12  # largest number of languages and pairs whose shares are listed
_MANY = 20  # number of passes over the rows above which a run prints a warning


def make_lines(schedule: Schedule, store: RowStore) -> list[Line]:
    """Returns the schedule at selected steps, in the format of metrics.

    Each line has these keys:

    - `step`, zero-based, and `tokens`, the number of tokens of all earlier steps
    - `learning_rate` and `weight_decay`
    - `rows/OBJECTIVE`, `length/OBJECTIVE` and `mask_rate/OBJECTIVE` of the active objectives
    - `share/TASK`, at the first and last step of each phase: the share of a language or pair (task)
      among the rows of its kind that the phase draws. Only the `_MOST_SHARES` tasks with the
      largest shares in any phase are listed.
    """
    phases, batches = schedule.phases, Batches(store, schedule.config)
    of_phases = [_shares(phase, store) for phase in phases]
    largest: dict[str, float] = {}
    for shares in of_phases:
        largest |= {task: max(p, largest.get(task, 0.0)) for task, p in shares.items()}
    listed_tasks = sorted(largest, key=lambda task: (-largest[task], task))[:_MOST_SHARES]
    edges = {edge for phase in phases for edge in (phase.start, phase.end - 1)}
    lines = []
    for step in sorted(_steps(phases) | edges):
        planned = schedule.at(step)
        phase, share = planned.phase, planned.microbatches / planned.phase.parts
        line: Line = {"step": step, "tokens": round(planned.tokens)}
        line["learning_rate"] = float(schedule.learning_rate(step))
        line["weight_decay"] = phase.config.optimizer.weight_decay
        for name, (rows, length) in batches.shapes(step).items():
            line |= {f"rows/{name}": round(rows * share), f"length/{name}": length}
            if (rate := getattr(phase.active()[name], "mask_rate", None)) is not None:
                line[f"mask_rate/{name}"] = rate
        if step in edges:
            shares = of_phases[phases.index(phase)]
            line |= {f"share/{task}": shares.get(task, 0.0) for task in listed_tasks}
        lines.append(line)
    return lines


def make_table(schedule: Schedule, store: RowStore) -> list[list[str]]:
    """Returns the schedule as a table: a row of column names, and a row for each phase."""
    batches = Batches(store, schedule.config)
    rows = [["phase", "steps", "tokens", "rows", "learning rate", "masks", "largest shares"]]
    for phase in schedule.phases:
        last = phase.end - 1
        shares = sorted(_shares(phase, store).items(), key=lambda item: (-item[1], item[0]))
        steps = np.unique(np.linspace(phase.start, last, _POINTS, dtype=np.int64))
        rates_by_step = schedule.learning_rate(steps)
        rates = rates_by_step[[0, int(rates_by_step.argmax()), -1]]
        shapes = batches.shapes(last).items()
        masks = [getattr(options, "mask_rate", None) for options in phase.active().values()]
        rows.append(
            [
                phase.name or "first",
                f"{phase.start:,} to {last:,}",
                f"{schedule.tokens(phase.start, phase.end):,.0f}",
                ", ".join(f"{name} {count} x {length}" for name, (count, length) in shapes),
                " to ".join(f"{rate:.3g}" for rate in dict.fromkeys(rates.tolist())),
                ", ".join(f"{rate:g}" for rate in masks if rate is not None),
                ", ".join(f"{task} {share:.1%}" for task, share in shares[:3]),
            ]
        )
    return rows


def _steps(phases: Sequence[Phase]) -> set[int]:
    """Returns the steps with a line, other than the first and last steps of phases.

    They are evenly spaced steps, and the last step before and the first step after each change of
    the batch size in the batch warm-up. More than `_POINTS` such changes are not listed.
    """
    count, ranges = phases[-1].end, phases[0].batch_sizes.ranges()
    steps = set(np.linspace(0, count - 1, _POINTS, dtype=np.int64).tolist())
    if len(ranges) <= _POINTS:
        steps |= {step for start, _ in ranges for step in (start, start - 1)}
    return {step for step in steps if 0 <= step < count}


def _shares(phase: Phase, store: RowStore) -> dict[str, float]:
    """Returns the share of each language or pair (task) among the rows of its kind that a phase
    draws."""
    shares: dict[str, float] = {}
    for options in phase.active().values():
        counts = mixture.count_draws(store, options, phase.config)
        shares |= {task: count / BLOCK for task, count in counts.items()}
    return shares


def make_warnings(schedule: Schedule, store: RowStore) -> list[str]:
    """Returns a line for each phase and kind of rows that the phase reads more than `_MANY` times.

    The line names a config key, and a value with which the phase would read the rows `_MANY` times.
    """
    lines, phases = [], schedule.phases
    keys = [*(f"phases.{phase.name}.start_step" for phase in phases[1:]), "train.steps"]
    for phase, key in zip(phases, keys, strict=True):
        of = f" in phase {phase.name}" if phase.name else ""
        passes = schedule.passes(phase.start, phase.end)
        for kind, rows in batch_size(phase.config).items():
            if passes[kind] > _MANY:
                available = rows_to_train(store, phase.config)[kind]
                # Steps of the batch warm-up are not full, so a phase with the warm-up needs more
                # steps to read the same rows.
                extra_steps = phase.end - phase.start - phase.done(phase.end)
                enough = phase.start + max(1, int(extra_steps) + _MANY * available // rows)
                lines.append(
                    f"warning: the run reads its {available:,} rows of {kind} {passes[kind]:,.0f} "
                    f"times{of}. Add text, or set {key}={enough} to read them {_MANY} times"
                )
    return lines
