"""Amounts of data that a run reads: exact numbers of rows and passes, mean numbers of tokens."""

import copy
from collections import Counter
from collections.abc import Mapping

from xlj.config import ROW_KINDS, Config, lookup
from xlj.data.rows import mixture
from xlj.data.rows.store import RowStore

_MANY = 20  # passes


class StepAmounts:
    """Amounts of data that one step reads.

    Args:
      store: the rows; None before they are built. Without a store, rows count as full and each step
        counts as a pass.
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
                row = mixture.tokens_of_row(self._store, options, config)
            else:
                # A length that depends on text not yet read: its upper bound.
                row = lookup(config, ROW_KINDS[options.rows].length) or config.model.positions - 2
            total += options.batch_rows * row
        return total

    def passes(self, config: Config) -> Mapping[str, float]:
        """Returns the share of the rows of each kind that such a step reads; 1 without a store."""
        if self._store is None:
            return {kind: 1.0 for kind in batch_rows(config)}
        available = rows_to_train(self._store, config)
        return {kind: rows / max(1, available[kind]) for kind, rows in batch_rows(config).items()}


def batch_rows(config: Config) -> Counter[str]:
    """Counts the rows of each kind that a step draws, under the config of a phase."""
    rows: Counter[str] = Counter()
    for options in config.objectives.active().values():
        rows[options.rows] += options.batch_rows
    return rows


def rows_to_train(store: RowStore, config: Config) -> dict[str, int]:
    """Counts the training rows of each kind, under the config of a phase."""
    return {
        options.rows: sum(task.train.rows for task in mixture.tasks(store, options, config))
        for options in config.objectives.active().values()
    }


class Amounts:
    """Amounts of data that a run reads between two steps. The durations of its config are steps."""

    def __init__(self, config: Config, step_amounts: StepAmounts):
        self.config = config
        self._tokens = [step_amounts.tokens(phase.config) for phase in config.schedule]
        self._passes = [step_amounts.passes(phase.config) for phase in config.schedule]

    def with_config(self, config: Config) -> "Amounts":
        """Returns the amounts of a config that differs in durations only."""
        other = copy.copy(self)
        other.config = config
        return other

    def tokens(self, begin: int, end: int) -> float:
        """Returns the expected number of tokens, without padding, in steps [begin, end)."""
        steps = self._steps(begin, end)
        return sum(n * tokens for n, tokens in zip(steps, self._tokens, strict=True))

    def passes(self, begin: int, end: int) -> dict[str, float]:
        """Returns how often these steps read the rows of each kind.

        This is the mean over languages and pairs; `data.alpha` sets how often each one is read.
        """
        totals: dict[str, float] = {}
        for steps, passes in zip(self._steps(begin, end), self._passes, strict=True):
            for kind, share in passes.items():
                totals[kind] = totals.get(kind, 0.0) + steps * share
        return totals

    def in_unit(self, unit: str, begin: int, end: int, phase: int) -> float:
        """Returns the steps, tokens or passes (`durations.UNITS`) in these steps.

        Passes are those over one kind of rows: among the kinds that `phase` reads, the one with the
        fewest passes.
        """
        if unit == "ep":
            passes = self.passes(begin, end)
            return min(passes[kind] for kind in self._passes[phase])
        return self.tokens(begin, end) if unit == "tok" else end - begin

    def _steps(self, begin: int, end: int) -> list[float]:
        """Counts the steps of each phase; a step with a part of its rows counts as that part."""
        return [phase.done(end) - phase.done(begin) for phase in self.config.schedule]


def warnings(config: Config, store: RowStore) -> list[str]:
    """Returns a line for each phase and kind of rows that the phase reads more than 20 times.

    Each line names a key, and the value of it with which the phase would read them 20 times.
    """
    lines, amounts = [], Amounts(config, StepAmounts(store))
    keys = [*(f"phases.{phase.name}.start_step" for phase in config.schedule[1:]), "train.steps"]
    for phase, key in zip(config.schedule, keys, strict=True):
        of = f" in phase {phase.name}" if phase.name else ""
        passes = amounts.passes(phase.start, phase.end)
        for kind, rows in batch_rows(phase.config).items():
            if passes[kind] > _MANY:
                available = rows_to_train(store, phase.config)[kind]
                whole = phase.end - phase.start - phase.done(phase.end)  # steps less by a warm-up
                enough = phase.start + max(1, int(whole) + _MANY * available // rows)
                lines.append(
                    f"warning: the run reads its {available:,} rows of {kind} {passes[kind]:,.0f} "
                    f"times{of}. Add text, or set {key}={enough} to read them {_MANY} times"
                )
    return lines
