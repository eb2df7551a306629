"""Converts durations in tokens, passes or percent into steps, from the rows of a run."""

import bisect
import math
from collections.abc import Callable, Mapping
from typing import Any

from xlj.config import Config, ConfigError, as_tree, build, durations
from xlj.config.batch_sizes import BatchSizes
from xlj.config.checks import check_phases
from xlj.config.fields import ConfigTree, flat, merge
from xlj.config.schema import unresolved
from xlj.config.sections import MOST_STEPS
from xlj.data.rows.store import RowStore
from xlj.training.schedule import Schedule


def resolve(config: Config, store: RowStore | None) -> tuple[Config, list[str]]:
    """Replaces all durations of a config by steps.

    A duration becomes the smallest number of steps that read its amount of data:

    - The batch warm-up, the starts of phases and the end of the run count from the first step.
    - A warm-up of the learning rate counts from the first step of its schedule.
    - A final decay counts back from the last step of its schedule.

    Tokens count without padding. A step counts as the mean number of tokens in a step of its phase.

    A duration in passes ends when every kind of rows that one phase reads has been read that many
    times. The phase is the one in which the duration ends. For a warm-up of the learning rate, it
    is the phase in which the warm-up begins.

    Args:
      store: the rows; None before they are built (`Schedule`).

    Returns:
      The config, and a line to print for each converted duration.

    Raises:
      ConfigError: if a duration takes more steps than the run or its schedule has, or if durations
        contradict each other.
    """
    texts = {k: text for k, text in unresolved(config).items() if not text.endswith("%")}
    if not unresolved(config):
        return config, []
    resolution = _Resolution(config, store, texts)
    phases = config.schedule
    if "train.batch_warmup" in texts:
        resolution.resolve_batch_warmup()
    for number in range(len(phases)):
        resolution.resolve_end_of_phase(number)
    for number, phase in enumerate(phases):
        prefix = f"phases.{phase.name}." if phase.name else ""
        resolution.resolve_warmup(number, f"{prefix}optimizer.warmup_steps")
        resolution.resolve_decay(number, f"{prefix}optimizer.decay_steps")
    resolved, lines = resolve_percentages(resolution.schedule.config)
    check_phases(resolved)
    return resolved, resolution.lines + lines


def resolve_percentages(config: Config) -> tuple[Config, list[str]]:
    """Replaces the percentages of a config, whose `train.steps` is a number, by steps.

    The time between evaluations or checkpoints is rounded up, so a run has no more of them than the
    percentage says. Other durations are rounded to the nearest number of steps.

    Returns:
      The config, and a line to print for each percentage.
    """
    texts, steps, lines = unresolved(config), {}, []
    for path, text in texts.items():
        count = config.train.steps * durations.read(text).amount / 100
        is_interval = path in ("train.eval_every", "train.checkpoint_every")
        steps[path] = max(1, math.ceil(count)) if is_interval else round(count)
        lines.append(f"{path}={text}: {steps[path]:,} steps")
    return (_with(config, steps) if texts else config), lines


def with_steps_of(config: Config, other: ConfigTree) -> Config | None:
    """Replaces the unresolved durations of a config by the steps in another config.

    Args:
      other: a config whose durations are steps, as nested dicts.

    Returns:
      The config, or None if `other` lacks the key of an unresolved duration.
    """
    texts, values = unresolved(config), flat(other)
    if not texts.keys() <= values.keys():
        return None
    steps: dict[str, Any] = {path: values[path] for path in texts}
    return _with(config, steps) if texts else config


class _Resolution:
    """Replaces the durations of a config by steps, one after another.

    Args:
      texts: the unresolved durations, by the path of their keys.

    Attributes:
      schedule: of a config with all durations that are resolved so far.
      lines: a line to print for each converted duration.
    """

    def __init__(self, config: Config, store: RowStore | None, texts: Mapping[str, str]):
        self._config, self._texts = config, texts
        starts = [f"phases.{phase.name}.start_step" for phase in config.schedule[1:]]
        self._ends = [*starts, "train.steps"]
        self._values: dict[str, Any] = flat(as_tree(config))
        # A phase whose end is not resolved yet has the largest possible number of steps.
        last = range(MOST_STEPS - len(starts), MOST_STEPS + 1)
        self._steps = dict.fromkeys(texts, 0) | dict(zip(self._ends, last, strict=True))
        self.schedule = Schedule(_with(config, self._steps), store)
        self.lines: list[str] = []

    def resolve_batch_warmup(self) -> None:
        """Resolves the batch warm-up, which must end within the first phase."""
        path, train = "train.batch_warmup", self._config.train
        schedule = self.schedule  # here the warm-up still has 0 steps, so step 0 is a full step

        def amount(unit: str, count: int) -> float:
            """Returns the amount of data that a warm-up of `count` steps reads."""
            sizes = BatchSizes(count, train.first_microbatches, train.gradient_accumulation_steps)
            return schedule.in_unit(unit, 0, 1, 0) * sizes.before(count) / sizes.full

        count = self._fewest(path, amount, MOST_STEPS // 2)
        self._settle(path, count, 0, count)

    def resolve_end_of_phase(self, number: int) -> None:
        """Resolves the end of a phase: the start of the next phase, or the end of the run.

        Args:
          number: of the phase, zero-based.
        """
        path, fewest = self._ends[number], self._config.train.fewest_steps
        if path not in self._texts:
            self._settle(path, self._values[path], 0, 0)
            return
        most = MOST_STEPS - len(self._ends) + number + 1
        end = self._fewest(path, lambda u, count: self.schedule.in_unit(u, 0, count, number), most)
        end = max(end, fewest) if path == "train.steps" else end
        self._settle(path, end, 0, end)

    def resolve_warmup(self, number: int, path: str) -> None:
        """Resolves the warm-up of a schedule that begins with a phase.

        Args:
          number: of the phase, zero-based.
          path: of the key.
        """
        if path not in self._texts:
            return
        begin, last = self.schedule.phases[number].rates_start, self.schedule.phases[-1].end

        def amount(unit: str, count: int) -> float:
            return self.schedule.in_unit(unit, begin, begin + count, number)

        count = self._fewest(path, amount, last - begin)
        self._settle(path, count, begin, begin + count)

    def resolve_decay(self, number: int, path: str) -> None:
        """Resolves the final decay of a schedule that begins with a phase.

        Args:
          number: of the phase, zero-based.
          path: of the key.
        """
        if path not in self._texts:
            return
        phases = self.schedule.phases
        begin, end = phases[number].rates_start, phases[number].rates_end
        last = max(n for n, phase in enumerate(phases) if phase.start < end)

        def amount(unit: str, count: int) -> float:
            return self.schedule.in_unit(unit, end - count, end, last)

        count = self._fewest(path, amount, end - begin)
        self._settle(path, count, end - count, end)

    def _fewest(self, path: str, amount: Callable[[str, int], float], most: int) -> int:
        """Returns the smallest number of steps that read the amount of a duration.

        Args:
          path: of the duration's key.
          amount: (unit, number of steps) -> the amount of data that these steps read.
          most: largest allowed number of steps.

        Raises:
          ConfigError: if more steps are needed.
        """
        target, unit = durations.read(self._texts[path])
        enough = target * (1 - 1e-9)  # sums of shares are rounded
        count = bisect.bisect_left(range(most + 1), True, key=lambda n: amount(unit, n) >= enough)
        if count > most:
            raise ConfigError(
                f"{path}={self._texts[path]} needs more steps than the {most:,} available, which "
                f"read {amount(unit, most):,.6g} {durations.UNITS[unit]}; lower {path}"
            )
        return count

    def _settle(self, path: str, count: int, begin: int, end: int) -> None:
        """Sets a duration to `count` steps.

        Args:
          path: of the duration's key.
          begin, end: the duration is steps [begin, end), whose tokens are printed.
        """
        self._steps[path] = count
        self.schedule = self.schedule.with_config(_with(self._config, self._steps))
        if path in self._texts:
            tokens = self.schedule.tokens(begin, end)
            self.lines.append(
                f"{path}={self._texts[path]}: {count:,} steps, about {tokens:,.0f} tokens"
            )


def _with(config: Config, steps: Mapping[str, int]) -> Config:
    """Returns a config with other numbers of steps.

    Args:
      steps: the numbers, by the path of their keys, e.g. `optimizer.warmup_steps`.
    """
    tree: dict[str, Any] = as_tree(config)
    for path, count in steps.items():
        *sections, name = path.split(".")
        changes: dict[str, Any] = {name: count}
        for section in reversed(sections):
            changes = {section: changes}
        tree = merge(tree, changes, "")
    return build(tree)
