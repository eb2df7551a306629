"""Computes how much data a run reads: passes over the rows, and the expected number of tokens."""

import copy
from collections import Counter
from collections.abc import Mapping

from xlj.config import Config, lookup
from xlj.data.rows import mixture
from xlj.data.rows.store import RowStore

_MANY = 20  # number of passes over the rows above which a run prints a warning


class StepAmounts:
    """Amounts of data that one full step reads.

    In a full step, all microbatches have rows. Steps of the batch warm-up are not full.

    Args:
      store: the rows; None before they are built. Without a store, all rows count as full, and a
        step counts as one pass over the rows.
    """

    def __init__(self, store: RowStore | None):
        self._store = store

    def tokens(self, config: Config) -> float:
        """Returns the mean number of tokens, without padding, in a full step of a phase.

        Args:
          config: of the phase.
        """
        total = 0.0
        for options in config.objectives.active().values():
            if self._store is not None:
                row = mixture.mean_tokens_per_row(self._store, options, config)
            else:
                # The length of rows may depend on text that is not read yet. Then the longest
                # rows that the model allows count.
                row = lookup(config, options.row_kind.length) or config.model.positions - 2
            total += options.batch_size * row
        return total

    def passes(self, config: Config) -> Mapping[str, float]:
        """Returns the share of the rows of each kind that a full step of a phase reads.

        Without a store, the share is 1.

        Args:
          config: of the phase.
        """
        if self._store is None:
            return {kind: 1.0 for kind in batch_size(config)}
        available = rows_to_train(self._store, config)
        return {kind: rows / max(1, available[kind]) for kind, rows in batch_size(config).items()}


def batch_size(config: Config) -> Counter[str]:
    """Counts the rows of each kind that a full step of a phase draws.

    Args:
      config: of the phase.
    """
    rows: Counter[str] = Counter()
    for options in config.objectives.active().values():
        rows[options.rows_name] += options.batch_size
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


class Amounts:
    """Amounts of data that a run reads between two steps.

    Args:
      config: with all durations as steps.
    """

    def __init__(self, config: Config, step_amounts: StepAmounts):
        self.config = config
        self._tokens = [step_amounts.tokens(phase.config) for phase in config.schedule]
        self._passes = [step_amounts.passes(phase.config) for phase in config.schedule]

    def with_config(self, config: Config) -> "Amounts":
        """Returns the amounts for another config, which may differ in durations only."""
        other = copy.copy(self)
        other.config = config
        return other

    def tokens(self, begin: int, end: int) -> float:
        """Returns the expected number of tokens, without padding, in steps [begin, end)."""
        steps = self._steps(begin, end)
        return sum(n * tokens for n, tokens in zip(steps, self._tokens, strict=True))

    def passes(self, begin: int, end: int) -> dict[str, float]:
        """Returns the number of passes over the rows of each kind in steps [begin, end).

        The number is a mean over languages and pairs. `data.alpha` sets how often each language is
        read.
        """
        totals: dict[str, float] = {}
        for steps, passes in zip(self._steps(begin, end), self._passes, strict=True):
            for kind, share in passes.items():
                totals[kind] = totals.get(kind, 0.0) + steps * share
        return totals

    def in_unit(self, unit: str, begin: int, end: int, phase: int) -> float:
        """Returns the amount of data in steps [begin, end), in a unit.

        Args:
          unit: `tok` for tokens, `ep` for passes, "" for steps (`xlj.config.durations.UNITS`).
          phase: zero-based number of a phase, used for passes only. The result is the smallest
            number of passes among the kinds of rows that this phase reads.
        """
        if unit == "ep":
            passes = self.passes(begin, end)
            return min(passes[kind] for kind in self._passes[phase])
        return self.tokens(begin, end) if unit == "tok" else end - begin

    def _steps(self, begin: int, end: int) -> list[float]:
        """Counts the full steps of each phase in steps [begin, end).

        A step of the batch warm-up counts as the fraction of its microbatches that have rows.
        """
        return [phase.done(end) - phase.done(begin) for phase in self.config.schedule]


def make_warnings(config: Config, store: RowStore) -> list[str]:
    """Returns a line for each phase and kind of rows that the phase reads more than `_MANY` times.

    The line names a config key, and a value with which the phase would read the rows `_MANY` times.
    """
    lines, amounts = [], Amounts(config, StepAmounts(store))
    keys = [*(f"phases.{phase.name}.start_step" for phase in config.schedule[1:]), "train.steps"]
    for phase, key in zip(config.schedule, keys, strict=True):
        of = f" in phase {phase.name}" if phase.name else ""
        passes = amounts.passes(phase.start, phase.end)
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
