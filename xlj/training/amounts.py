"""Counts how much data one full step reads: rows, passes over the rows, and tokens.

In a full step, all microbatches have rows. Steps of the batch warm-up are not full.
"""

from collections import Counter
from collections.abc import Mapping

from xlj.config import Config, lookup
from xlj.data.rows import mixture
from xlj.data.rows.store import RowStore


def tokens_of_step(config: Config, store: RowStore | None) -> float:
    """Returns the mean number of tokens, without padding, in a full step of a phase.

    Args:
      config: of the phase.
      store: the rows; None before they are built. Then all rows count as full.
    """
    total = 0.0
    for options in config.objectives.active().values():
        if store is not None:
            row = mixture.mean_tokens_per_row(store, options, config)
        else:
            # The length of rows may depend on text that is not read yet. Then the longest rows that
            # the model allows count.
            row = lookup(config, options.row_kind.length) or config.model.positions - 2
        total += options.batch_rows * row
    return total


def passes_of_step(config: Config, store: RowStore | None) -> Mapping[str, float]:
    """Returns the share of the rows of each kind that a full step of a phase reads.

    Args:
      config: of the phase.
      store: the rows; None before they are built. Then the share is 1.
    """
    if store is None:
        return {kind: 1.0 for kind in batch_rows(config)}
    available = rows_to_train(store, config)
    return {kind: rows / max(1, available[kind]) for kind, rows in batch_rows(config).items()}


def batch_rows(config: Config) -> Counter[str]:
    """Counts the rows of each kind that a full step of a phase draws.

    Args:
      config: of the phase.
    """
    rows: Counter[str] = Counter()
    for options in config.objectives.active().values():
        rows[options.rows_name] += options.batch_rows
    return rows


def rows_to_train(store: RowStore, config: Config) -> dict[str, int]:
    """Counts the training rows of each kind that a phase may draw.

    Args:
      config: of the phase.
    """
    rows = {}
    for options in config.objectives.active().values():
        tasks = mixture.select_tasks(store, options, config)
        rows[options.rows_name] = sum(task.train.rows for task in tasks)
    return rows
