"""Turns the durations of a config that are in tokens or passes into steps, once, from its rows."""

import bisect
from collections.abc import Callable, Mapping
from typing import Any

from xlj.config import Config, ConfigError, Phase, as_tree, build, durations
from xlj.config.batch_warmup import BatchWarmup
from xlj.config.checks import check_phases
from xlj.config.fields import ConfigTree, flat, merge
from xlj.config.schema import unresolved
from xlj.config.sections import MOST_STEPS
from xlj.training.amounts import Amounts, Reading


def resolve(config: Config, reading: Reading) -> tuple[Config, list[str]]:
    """The config with steps in the place of all durations; and a line for each that was none.

    The batch warm-up, starts of phases and the end of the run count from the first step, a warm-up
    of the rate from the first step of its schedule, a final decay back from the last. Each is the
    fewest steps that read as much as it says: tokens, without padding, of the mixture of each
    phase; or passes over each kind of rows, of those that the phase reads in which it ends (or, of
    a warm-up, begins).

    Raises:
      ConfigError: if these are more steps than a run or a schedule has, or contradict each other.
    """
    texts = unresolved(config)
    if not texts:
        return config, []
    found = _Resolution(config, reading, texts)
    phases = config.schedule
    if "train.batch_warmup" in texts:
        found.batch_warmup()
    for number in range(len(phases)):
        found.end_of_phase(number)
    for number, phase in enumerate(phases):
        prefix = f"phases.{phase.name}." if phase.name else ""
        found.warmup(number, f"{prefix}optimizer.warmup_steps")
        found.decay(number, f"{prefix}optimizer.decay_steps")
    resolved = found.amounts.config
    check_phases(resolved)
    return resolved, found.lines


def as_in(config: Config, other: ConfigTree) -> Config | None:
    """The config with the durations that rows are yet to turn into steps as they are in another, as
    nested dicts; None if that lacks one."""
    texts, there = unresolved(config), flat(other)
    if not texts.keys() <= there.keys():
        return None
    steps: dict[str, Any] = {path: there[path] for path in texts}
    return _with(config, steps) if texts else config


class _Resolution:
    """A config whose durations become steps, one by one.

    Attributes:
      amounts: of the config so far.
      lines: what each duration has become.
    """

    def __init__(self, config: Config, reading: Reading, texts: Mapping[str, str]):
        self._config, self._texts = config, texts
        starts = [f"phases.{phase.name}.start_step" for phase in config.schedule[1:]]
        self._ends = [*starts, "train.steps"]
        self._given: dict[str, Any] = flat(as_tree(config))
        # While its end is not known, a phase goes on for as long as any run may.
        last = range(MOST_STEPS - len(starts), MOST_STEPS + 1)
        self._steps = dict.fromkeys(texts, 0) | dict(zip(self._ends, last, strict=True))
        self.amounts = Amounts(_with(config, self._steps), reading)
        self.lines: list[str] = []

    def batch_warmup(self) -> None:
        """Resolves the batch warm-up: it is all in the first phase."""
        path, train = "train.batch_warmup", self._config.train
        whole = self.amounts

        def amount(unit: str, count: int) -> float:
            """Of a warm-up of so many steps."""
            warmup = BatchWarmup(count, train.first_microbatches, train.accumulation)
            return whole.of_unit(unit, 0, 1, 0) * warmup.before(count) / warmup.parts

        count = self._fewest(path, amount, MOST_STEPS // 2)
        self._settle(path, count, 0, count)

    def end_of_phase(self, number: int) -> None:
        """Resolves where a phase ends: the next one's start, or the end of the run."""
        path, fewest = self._ends[number], self._config.train.fewest_steps
        if path not in self._texts:
            self._settle(path, self._given[path], 0, 0)
            return
        most = MOST_STEPS - len(self._ends) + number + 1
        end = self._fewest(path, lambda u, count: self.amounts.of_unit(u, 0, count, number), most)
        end = max(end, fewest) if path == "train.steps" else end
        self._settle(path, end, 0, end)

    def warmup(self, number: int, path: str) -> None:
        """Resolves the warm-up of a schedule that begins with a phase."""
        if path not in self._texts:
            return
        begin, last = self._phase(number).rates_start, self._last

        def amount(unit: str, count: int) -> float:
            return self.amounts.of_unit(unit, begin, begin + count, number)

        count = self._fewest(path, amount, last - begin)
        self._settle(path, count, begin, begin + count)

    def decay(self, number: int, path: str) -> None:
        """Resolves the final decay of a schedule that begins with a phase."""
        if path not in self._texts:
            return
        begin, end = self._phase(number).rates_start, self._phase(number).rates_end
        last = max(n for n, phase in enumerate(self._schedule) if phase.start < end)

        def amount(unit: str, count: int) -> float:
            return self.amounts.of_unit(unit, end - count, end, last)

        count = self._fewest(path, amount, end - begin)
        self._settle(path, count, end - count, end)

    @property
    def _schedule(self) -> tuple[Phase, ...]:
        return self.amounts.config.schedule

    @property
    def _last(self) -> int:
        return self._schedule[-1].end

    def _phase(self, number: int) -> Phase:
        return self._schedule[number]

    def _fewest(self, path: str, amount: Callable[[str, int], float], most: int) -> int:
        """The fewest steps of which there is as much as a duration says.

        Args:
          amount: how much there is of a unit in a number of steps.
        """
        wanted, unit = durations.read(self._texts[path])
        enough = wanted * (1 - 1e-9)  # sums of shares are rounded
        count = bisect.bisect_left(range(most + 1), True, key=lambda n: amount(unit, n) >= enough)
        if count > most:
            raise ConfigError(
                f"{path}={self._texts[path]} takes more than the {most:,} steps that there are; "
                f"these read {amount(unit, most):,.6g} {durations.UNITS[unit]}"
            )
        return count

    def _settle(self, path: str, count: int, begin: int, end: int) -> None:
        """Takes a number of steps, from `begin` to before `end`, for a duration."""
        self._steps[path] = count
        self.amounts = self.amounts.of(_with(self._config, self._steps))
        if path in self._texts:
            tokens = self.amounts.tokens(begin, end)
            self.lines.append(
                f"{path}={self._texts[path]}: {count:,} steps, about {tokens:,.0f} tokens"
            )


def _with(config: Config, steps: Mapping[str, int]) -> Config:
    """A config with other values of some keys, by full path."""
    tree: dict[str, Any] = as_tree(config)
    for path, count in steps.items():
        *sections, name = path.split(".")
        changes: dict[str, Any] = {name: count}
        for section in reversed(sections):
            changes = {section: changes}
        tree = merge(tree, changes, "")
    return build(tree)
