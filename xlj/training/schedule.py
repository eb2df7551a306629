"""The schedule of a run, known before it starts: rates, rows, masks, shares and tokens by step."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlj.config import Config, Phase
from xlj.data.rows import mixture
from xlj.data.rows.batches import Batches
from xlj.data.rows.draws import BLOCK
from xlj.data.rows.store import RowStore
from xlj.optimizers.schedules import learning_rate
from xlj.training.amounts import Amounts, StepAmounts
from xlj.training.metrics import Line

_POINTS = 200  # number of evenly spaced steps with a line, besides the steps where values change
_MOST_SHARES = 12  # largest number of languages and pairs whose shares are listed


def make_lines(config: Config, store: RowStore) -> list[Line]:
    """Returns the schedule at selected steps, in the format of metrics.

    Each line has these keys:

    - `step`, zero-based, and `tokens`, the number of tokens of all earlier steps
    - `learning_rate` and `weight_decay`
    - `rows/OBJECTIVE`, `length/OBJECTIVE` and `mask_rate/OBJECTIVE` of the active objectives
    - `share/TASK`, at the first and last step of each phase: the share of a language or pair (task)
      among the rows of its kind that the phase draws. Only the `_MOST_SHARES` tasks with the
      largest shares in any phase are listed.

    Args:
      config: with all durations as steps.
    """
    batches, amounts = Batches(store, config), Amounts(config, StepAmounts(store))
    of_phases = [_shares(phase, store) for phase in config.schedule]
    largest: dict[str, float] = {}
    for shares in of_phases:
        largest |= {task: max(p, largest.get(task, 0.0)) for task, p in shares.items()}
    listed_tasks = sorted(largest, key=lambda task: (-largest[task], task))[:_MOST_SHARES]
    edges = {edge for phase in config.schedule for edge in (phase.start, phase.end - 1)}
    schedule = []
    for step in sorted(_steps(config) | edges):
        phase = config.phase_at(step)
        line: Line = {"step": step, "tokens": round(amounts.tokens(0, step))}
        line["learning_rate"] = float(learning_rate(config, step))
        line["weight_decay"] = phase.config.optimizer.weight_decay
        share = config.microbatches(step) / phase.parts
        for name, (rows, length) in batches.shapes(step).items():
            line |= {f"rows/{name}": round(rows * share), f"length/{name}": length}
            if (rate := getattr(phase.active()[name], "mask_rate", None)) is not None:
                line[f"mask_rate/{name}"] = rate
        if step in edges:
            shares = of_phases[config.schedule.index(phase)]
            line |= {f"share/{task}": shares.get(task, 0.0) for task in listed_tasks}
        schedule.append(line)
    return schedule


def make_table(config: Config, store: RowStore) -> list[list[str]]:
    """Returns the schedule as a table: a row of column names, and a row for each phase."""
    amounts, batches = Amounts(config, StepAmounts(store)), Batches(store, config)
    rows = [["phase", "steps", "tokens", "rows", "learning rate", "masks", "largest shares"]]
    for phase in config.schedule:
        last = phase.end - 1
        shares = sorted(_shares(phase, store).items(), key=lambda item: (-item[1], item[0]))
        steps = np.unique(np.linspace(phase.start, last, _POINTS, dtype=np.int64))
        rates_by_step = learning_rate(config, steps)
        rates = rates_by_step[[0, int(rates_by_step.argmax()), -1]]
        shapes = batches.shapes(last).items()
        masks = [getattr(options, "mask_rate", None) for options in phase.active().values()]
        rows.append(
            [
                phase.name or "first",
                f"{phase.start:,} to {last:,}",
                f"{amounts.tokens(phase.start, phase.end):,.0f}",
                ", ".join(f"{name} {count} x {length}" for name, (count, length) in shapes),
                " to ".join(f"{rate:.3g}" for rate in dict.fromkeys(rates.tolist())),
                ", ".join(f"{rate:g}" for rate in masks if rate is not None),
                ", ".join(f"{task} {share:.1%}" for task, share in shares[:3]),
            ]
        )
    return rows


def _steps(config: Config) -> set[int]:
    """Returns the steps with a line, other than the first and last steps of phases.

    They are evenly spaced steps, and the last step before and the first step after each change of
    the batch size in the batch warm-up. More than `_POINTS` such changes are not listed.
    """
    steps = set(np.linspace(0, config.train.steps - 1, _POINTS, dtype=np.int64).tolist())
    stretches: Sequence[Any] = config.batch_warmup.stretches() if config.batch_warmup else ()
    if len(stretches) <= _POINTS:
        steps |= {step for start, _ in stretches for step in (start, start - 1) if step >= 0}
    return {step for step in steps if step < config.train.steps}


def _shares(phase: Phase, store: RowStore) -> dict[str, float]:
    """Returns the share of each language or pair (task) among the rows of its kind that a phase
    draws."""
    shares: dict[str, float] = {}
    for options in phase.active().values():
        counts = mixture.count_draws(store, options, phase.config)
        shares |= {task: count / BLOCK for task, count in counts.items()}
    return shares
