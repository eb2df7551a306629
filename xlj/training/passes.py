"""How often a run draws as many rows as there are."""

from collections import Counter

from xlj.config import Config
from xlj.data.rows.store import RowStore


def passes(config: Config, store: RowStore) -> dict[str, float]:
    """Of each kind of rows, what the whole run draws over what there is to train on. Single
    languages and pairs are drawn more often or less, as `data.alpha` says."""
    ends = [*(phase.start for phase in config.schedule[1:]), config.train.steps]
    drawn: Counter[str] = Counter()
    for phase, end in zip(config.schedule, ends, strict=True):
        for options in phase.config.objectives.active().values():
            drawn[options.rows] += (end - phase.start) * options.batch_rows
    there = {kind: sum(task.train.rows for task in store.tasks(kind)) for kind in drawn}
    return {kind: drawn[kind] / rows for kind, rows in there.items() if rows}
