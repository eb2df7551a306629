"""The schedule of a run: for each step, its phase, rates and microbatches, and the tokens before.

All durations of the config are numbers of steps here; `xlj.training.duration_steps` converts
others.

The functions at the end describe the schedule for readers: lines by step, a table of phases, and
warnings.
"""

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlj.checkpoints.metrics import Line
from xlj.config import Config, Phase, lookup
from xlj.data.rows import draws
from xlj.data.rows.batches import Batches
from xlj.data.rows.draws import BLOCK
from xlj.data.rows.store import RowStore
from xlj.optimizers import Rates


class ScheduledStep(NamedTuple):
    """What the schedule sets for a step."""

    phase: Phase
    rates: Rates
    microbatches: int
    """The number of microbatches that have rows; all of the phase after the batch warm-up."""
    filled: np.int32 | None
    """`microbatches` as an argument of the compiled step; None in a run without a batch warm-up,
    whose program computes all microbatches."""
    tokens: float
    """The expected number of tokens, without padding, of all earlier steps."""


LOWEST_RATES = ((1_000_000, 1e-3), (10_000_000, 5e-4))
"""(A number of parameters, the lowest learning rate with which a trained model is trained further
if its layers have fewer parameters), docs/experiments/real_text_finetuned.md."""


def count_layers(leaves: Mapping[str, Any]) -> int:
    """Returns the number of parameters of a model's layers, without embeddings and heads.

    Args:
      leaves: the parameters by name, e.g. layers/attention/query/kernel; each has a `shape`.
    """
    return sum(math.prod(x.shape) for name, x in leaves.items() if name.startswith("layers/"))


def rate_for_size(rate: float, parameters: int) -> float:
    """Returns a learning rate for a trained model: `rate`, or more for a small model.

    Args:
      parameters: the result of `count_layers`.
    """
    return max(rate, next((low for most, low in LOWEST_RATES if parameters < most), 0.0))


def describe_lowest_rates() -> str:
    """Returns `LOWEST_RATES` as text."""
    return " and ".join(f"at least {rate:g} below {most:,}" for most, rate in LOWEST_RATES[::-1])


class Schedule:
    """The schedule of a run, and the amounts of data that the run reads between two steps.

    A step of the batch warm-up counts as the fraction of its microbatches that have rows.

    Args:
      config: with all durations as steps.
      store: the rows; None before they are built. Then all rows count as full, and a step counts
        as one pass over the rows.
    """

    def __init__(self, config: Config, store: RowStore | None):
        self.config = config
        self._tokens = [tokens_of_step(phase.config, store) for phase in self.phases]
        self._passes = [passes_of_step(phase.config, store) for phase in self.phases]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of the run in order of steps."""
        return self.config.schedule

    def with_config(self, config: Config) -> "Schedule":
        """Returns the schedule of another config, which may differ in durations only."""
        other = copy.copy(self)
        other.config = config
        return other

    def at(self, step: int) -> ScheduledStep:
        """Returns what the schedule sets for a step.

        With `optimizer.decoupling=fully`, the function divides the configured weight decay by the
        peak of the learning rate. So a step at the peak multiplies a parameter by
        1 - `optimizer.weight_decay`, whatever the peak is.

        Args:
          step: zero-based. Steps beyond the end of the run have the phase of the last step.
        """
        phase = self.config.phase_at(step)
        options, microbatches = phase.config.optimizer, phase.microbatches(step)
        rate = self._rate_of_phase(phase, np.asarray(step))
        peak = options.learning_rate if options.decoupling == "fully" else 1.0
        return ScheduledStep(
            phase=phase,
            rates=Rates(rate, np.float32(options.weight_decay / peak)),
            microbatches=microbatches,
            filled=np.int32(microbatches) if self.phases[0].batch_sizes.grow else None,
            tokens=self.tokens(0, step),
        )

    def learning_rate(self, step: np.ndarray | int) -> np.ndarray:
        """Returns the learning rate of steps.

        A schedule of the learning rate starts with the run, or with a phase that sets a schedule.
        It ends with the run, or when the next schedule starts. All have a linear warm-up to the
        peak. After the warm-up:

        - `linear`, `cosine`, `sqrt`: the rate falls from the peak to `floor` times the peak.
        - `constant`: the rate stays at the peak.
        - `wsd` (warm-up-stable-decay, Hu et al., 2024): the rate stays at the peak, and falls over
          the last `decay_steps` steps in the form that `optimizer.decay` names.

        During the batch warm-up, a step counts as the fraction of a full batch that it reads. So
        rates are linear in tokens, as in ModernBERT.

        Args:
          step: zero-based numbers of steps, of any shape.

        Returns:
          float32, of the shape of `step`.
        """
        step = np.asarray(step)
        rate = np.zeros_like(step, np.float32)
        for phase in self.phases:
            rate = np.where(step >= phase.start, self._rate_of_phase(phase, step), rate)
        return rate

    def tokens(self, begin: int, end: int) -> float:
        """Returns the expected number of tokens, without padding, in steps [begin, end)."""
        steps = self._full_steps(begin, end)
        return sum(n * tokens for n, tokens in zip(steps, self._tokens, strict=True))

    def passes(self, begin: int, end: int) -> dict[str, float]:
        """Returns the number of passes over the rows of each kind in steps [begin, end).

        The number is a mean over languages and pairs. `data.alpha` sets how often each language is
        read.
        """
        totals: dict[str, float] = {}
        for steps, passes in zip(self._full_steps(begin, end), self._passes, strict=True):
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

    def _full_steps(self, begin: int, end: int) -> list[float]:
        """Counts the full steps of each phase in steps [begin, end)."""
        return [phase.done(end) - phase.done(begin) for phase in self.phases]

    def _rate_of_phase(self, phase: Phase, step: np.ndarray) -> np.ndarray:
        """Returns the learning rate of steps by the schedule of a phase, float32."""
        options, start, end = phase.config.optimizer, phase.rates_start, phase.rates_end
        is_wsd, warmup = options.schedule == "wsd", options.warmup_steps
        begin = end - options.decay_steps if is_wsd else start + warmup
        form = options.decay if is_wsd else options.schedule
        rise = remaining = np.ones_like(step, np.float32)
        if warmup:
            rise = self._share(start, step + 1, start, start + warmup)
        if begin < end and form != "constant":
            remaining = np.clip(self._share(step, end, begin, end), 0, 1)
        floor = np.float32(options.floor)
        fall = floor + (1 - floor) * _FALLS[form](remaining)
        return np.float32(options.learning_rate) * np.clip(np.minimum(rise, fall), 0, 1)

    def _share(
        self, begin: np.ndarray | int, end: np.ndarray | int, first: int, last: int
    ) -> np.ndarray:
        """Returns the batches of steps [begin, end) as a share of those of steps [first, last).

        The result is a product with the rounded reciprocal, as XLA divides by a constant.
        """
        sizes = self.phases[0].batch_sizes

        def before(step: np.ndarray | int) -> np.ndarray:
            """Returns how many full batches the steps before `step` read."""
            if not sizes.grow:
                return np.asarray(step)
            return np.vectorize(sizes.before, otypes=[np.int64])(np.maximum(step, 0)) / sizes.full

        count = np.float32(before(last) - before(first))
        return (before(end) - before(begin)).astype(np.float32) * (np.float32(1) / count)


_FALLS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda left: left,
    "cosine": lambda left: (1 - np.cos(np.float32(np.pi) * left)) / 2,
    "sqrt": lambda left: 1 - np.sqrt(1 - left),
    "constant": lambda left: left,
}
"""Forms of a decay. The argument is the fraction of the decay's steps that remain, from 1 to 0. The
result is the fraction of the difference between peak and floor that remains. `sqrt` is 1 - sqrt of
the elapsed fraction (Haegele et al., 2024; ModernBERT, mmBERT)."""


def tokens_of_step(config: Config, store: RowStore | None) -> float:
    """Returns the mean number of tokens, without padding, in a full step of a phase.

    Args:
      config: of the phase.
      store: the rows; None before they are built. Then all rows count as full.
    """
    total = 0.0
    for options in config.objectives.active().values():
        if store is not None:
            row = draws.mean_tokens_per_row(store, options, config)
        else:
            # The length of rows may depend on text that is not read yet. Then the longest rows that
            # the model allows count.
            row = lookup(config, options.row_kind.length) or config.model.positions - 2
        total += options.batch_size * row
    return total


def passes_of_step(config: Config, store: RowStore | None) -> Mapping[str, float]:
    """Returns the share of the rows of each kind that a full step of a phase reads.

    Args:
      config: of the phase.
      store: the rows; None before they are built. Then the share is 1.
    """
    if store is None:
        return {kind: 1.0 for kind in batch_size(config)}
    available = rows_to_train(store, config)
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
        tasks = draws.select_tasks(store, options, config)
        rows[options.rows_name] = sum(task.train.rows for task in tasks)
    return rows


_POINTS = 200  # number of evenly spaced steps with a line, besides the steps where values change
_MOST_SHARES = 12  # largest number of languages and pairs whose shares are listed
MANY = 20
"""The number of passes over the rows of a kind above which a run prints a warning."""


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
        phase, share = planned.phase, planned.microbatches / planned.phase.accumulation_steps
        line: Line = {"step": step, "tokens": round(planned.tokens)}
        line["learning_rate"] = float(schedule.learning_rate(step))
        line["weight_decay"] = phase.config.optimizer.weight_decay
        for name, options in phase.active().items():
            line |= {
                f"rows/{name}": round(options.batch_size * share),
                f"length/{name}": batches.row_length(name, step),
            }
            if (rate := getattr(options, "mask_rate", None)) is not None:
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
        shapes = [
            f"{name} {options.batch_size} x {batches.row_length(name, last)}"
            for name, options in phase.active().items()
        ]
        masks = [getattr(options, "mask_rate", None) for options in phase.active().values()]
        rows.append(
            [
                phase.name or "first",
                f"{phase.start:,} to {last:,}",
                f"{schedule.tokens(phase.start, phase.end):,.0f}",
                ", ".join(shapes),
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
        counts = draws.count_draws(store, options, phase.config)
        shares |= {task: count / BLOCK for task, count in counts.items()}
    return shares


def make_warnings(schedule: Schedule, store: RowStore, steps_key: str = "train.steps") -> list[str]:
    """Returns a line for each phase and kind of rows that the phase reads more than `MANY` times.

    The line names a config key, and a value with which the phase would read the rows `MANY` times.

    Args:
      steps_key: the name of the key `train.steps`, or of a flag that sets it.
    """
    lines, phases = [], schedule.phases
    keys = [*(f"phases.{phase.name}.start_step" for phase in phases[1:]), steps_key]
    for phase, key in zip(phases, keys, strict=True):
        of = f" in phase {phase.name}" if phase.name else ""
        passes = schedule.passes(phase.start, phase.end)
        for kind, rows in batch_size(phase.config).items():
            if passes[kind] > MANY:
                available = rows_to_train(store, phase.config)[kind]
                # Steps of the batch warm-up are not full, so a phase with the warm-up needs more
                # steps to read the same rows.
                extra_steps = phase.end - phase.start - phase.done(phase.end)
                enough = phase.start + max(1, int(extra_steps) + MANY * available // rows)
                lines.append(
                    f"warning: the run reads its {available:,} rows of {kind} {passes[kind]:,.0f} "
                    f"times{of}. Add text, or set {key}={enough} to read them {MANY} times"
                )
    return lines
