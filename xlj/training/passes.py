"""How often a run reads its rows, and how many steps it takes to read them often enough."""

import dataclasses
import math
from collections import Counter

from xlj.config import Config, ConfigError
from xlj.config.sections import MOST_STEPS
from xlj.data.rows.store import RowStore


def passes(config: Config, store: RowStore) -> dict[str, float]:
    """Of each kind of rows, what the whole run draws over what there is to train on. Single
    languages and pairs are drawn more often or less, as `data.alpha` says."""
    drawn = _drawn(config, config.train.steps)
    there = {kind: _rows(store, kind) for kind in drawn}
    return {kind: drawn[kind] / rows for kind, rows in there.items() if rows}


_MANY = 20


def warnings(config: Config, store: RowStore) -> list[str]:
    """A line for each phase and kind of rows that the phase reads more than 20 times, with the key
    and the value at which it would be 20 times."""
    found = []
    keys = [*(f"phases.{phase.name}.start_step" for phase in config.schedule[1:]), "train.steps"]
    for phase, key in zip(config.schedule, keys, strict=True):
        of = f" in phase {phase.name}" if phase.name else ""
        for kind, rows in _batch_rows(phase.config).items():
            there = _rows(store, kind)
            times = (phase.end - phase.start) * rows / max(1, there)
            if times > _MANY:
                enough = phase.start + max(1, _MANY * there // rows)
                found.append(
                    f"warning: the run passes {times:,.0f} times over its {there:,} rows of {kind}"
                    f"{of}; with {key}={enough} it is {_MANY} times. More text is better"
                )
    return found


def with_steps(config: Config, store: RowStore) -> Config:
    """The config with `train.passes` as `train.steps`: as many steps more as the last phase needs
    for each kind of rows that it draws to be read that often in the run. `train.passes` is then 0.

    Raises:
      ConfigError: if that is more steps than a run may have.
    """
    wanted, steps = config.train.passes, config.train.steps
    if not wanted:
        return config
    last = config.schedule[-1]
    before = _drawn(config, last.start)
    per_step = _batch_rows(last.config)
    for kind, rows in per_step.items():
        missing = wanted * _rows(store, kind) - before[kind]
        steps = max(steps, last.start + math.ceil(missing / rows))
    if steps > MOST_STEPS:
        raise ConfigError(
            f"train.passes={wanted:g} takes {steps:,} steps over these rows; a run has at most "
            f"{MOST_STEPS:,}"
        )
    train = dataclasses.replace(config.train, steps=steps, passes=0.0)
    return dataclasses.replace(config, train=train)


def _drawn(config: Config, steps: int) -> Counter[str]:
    """Rows of each kind that the first steps draw."""
    drawn: Counter[str] = Counter()
    for phase in config.schedule:
        for kind, rows in _batch_rows(phase.config).items():
            drawn[kind] += max(0, min(phase.end, steps) - phase.start) * rows
    return drawn


def _batch_rows(config: Config) -> Counter[str]:
    """Rows of each kind that a step draws."""
    rows: Counter[str] = Counter()
    for options in config.objectives.active().values():
        rows[options.rows] += options.batch_rows
    return rows


def _rows(store: RowStore, kind: str) -> int:
    return sum(task.train.rows for task in store.tasks(kind))
