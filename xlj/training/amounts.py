"""How much a run reads: tokens, and passes over its rows; exact of rows, of tokens the mean."""

import copy
from collections import Counter
from collections.abc import Mapping

from xlj.config import ROW_KINDS, Config, lookup
from xlj.data.rows import mixture
from xlj.data.rows.store import RowStore

_MANY = 20


class Reading:
    """What steps read of rows.

    Args:
      store: the rows; None if they are yet to be built. Then rows count as full, and each step as a
        pass.
    """

    def __init__(self, store: RowStore | None):
        self._store = store

    def tokens(self, config: Config) -> float:
        """Tokens, without padding, of a step with all its rows, under the config of a phase: the
        mean over its draws."""
        total = 0.0
        for options in config.objectives.active().values():
            if self._store is not None:
                row = mixture.tokens_of_row(self._store, options, config)
            else:
                # At most, of a length that the text is yet to decide.
                row = lookup(config, ROW_KINDS[options.rows].length) or config.model.positions - 2
            total += options.batch_rows * row
        return total

    def passes(self, config: Config) -> Mapping[str, float]:
        """The share of the rows of each kind that such a step reads; of unknown rows all."""
        if self._store is None:
            return {kind: 1.0 for kind in batch_rows(config)}
        there = rows_to_train(self._store, config)
        return {kind: rows / max(1, there[kind]) for kind, rows in batch_rows(config).items()}


def batch_rows(config: Config) -> Counter[str]:
    """Rows of each kind that a step draws, under the config of a phase."""
    rows: Counter[str] = Counter()
    for options in config.objectives.active().values():
        rows[options.rows] += options.batch_rows
    return rows


def rows_to_train(store: RowStore, config: Config) -> dict[str, int]:
    """How many rows of each kind there are to train on, under the config of a phase."""
    return {
        options.rows: sum(task.train.rows for task in mixture.tasks(store, options, config))
        for options in config.objectives.active().values()
    }


class Amounts:
    """What a run reads between two steps. The durations of its config are steps."""

    def __init__(self, config: Config, reading: Reading):
        self.config = config
        self._tokens = [reading.tokens(phase.config) for phase in config.schedule]
        self._passes = [reading.passes(phase.config) for phase in config.schedule]

    def of(self, config: Config) -> "Amounts":
        """Those of a config of which durations alone are others."""
        other = copy.copy(self)
        other.config = config
        return other

    def tokens(self, begin: int, end: int) -> float:
        """About how many tokens, without padding, the steps from `begin` to before `end` read."""
        steps = self._steps(begin, end)
        return sum(n * tokens for n, tokens in zip(steps, self._tokens, strict=True))

    def passes(self, begin: int, end: int) -> dict[str, float]:
        """How often these steps read the rows of each kind. Single languages and pairs are read
        more often or less, as `data.alpha` says."""
        found: dict[str, float] = {}
        for steps, passes in zip(self._steps(begin, end), self._passes, strict=True):
            for kind, share in passes.items():
                found[kind] = found.get(kind, 0.0) + steps * share
        return found

    def of_unit(self, unit: str, begin: int, end: int, phase: int) -> float:
        """Steps, tokens or passes (`durations.UNITS`) of these steps; passes of the kind of rows
        that has fewest, of those that a phase reads."""
        if unit == "ep":
            passes = self.passes(begin, end)
            return min(passes[kind] for kind in self._passes[phase])
        return self.tokens(begin, end) if unit == "tok" else end - begin

    def _steps(self, begin: int, end: int) -> list[float]:
        """How many steps of each phase these are, each as the share of its rows that it reads."""
        return [phase.done(end) - phase.done(begin) for phase in self.config.schedule]


def warnings(config: Config, store: RowStore) -> list[str]:
    """A line for each phase and kind of rows that the phase reads more than 20 times, with the key
    and the value at which it would be 20 times."""
    found, amounts = [], Amounts(config, Reading(store))
    keys = [*(f"phases.{phase.name}.start_step" for phase in config.schedule[1:]), "train.steps"]
    for phase, key in zip(config.schedule, keys, strict=True):
        of = f" in phase {phase.name}" if phase.name else ""
        passes = amounts.passes(phase.start, phase.end)
        for kind, rows in batch_rows(phase.config).items():
            if passes[kind] > _MANY:
                there = rows_to_train(store, phase.config)[kind]
                whole = phase.end - phase.start - phase.done(phase.end)  # steps less by a warm-up
                enough = phase.start + max(1, int(whole) + _MANY * there // rows)
                found.append(
                    f"warning: the run passes {passes[kind]:,.0f} times over its {there:,} rows of "
                    f"{kind}{of}; with {key}={enough} it is {_MANY} times. More text is better"
                )
    return found
