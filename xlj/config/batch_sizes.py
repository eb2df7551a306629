"""Batch sizes: the number of microbatches of a step, as a function of the step alone."""

from typing import NamedTuple

from xlj.config.fields import ConfigError
from xlj.config.sections import Train

KEYS = ("train.batch_warmup", "train.first_microbatches", "train.gradient_accumulation_steps")
"""Keys that determine the batch sizes. Without the first key, the other keys do not change which
rows a step reads."""


class BatchSizes(NamedTuple):
    """The numbers of microbatches of the steps of a phase.

    In the batch warm-up, the first `warmup_steps` steps, batches grow from `first` to `full`
    microbatches. The numbers of steps at each size from `first` to `full` - 1 differ by at most
    one. So the number of tokens that the run reads at a size is proportional to the size
    (ModernBERT, mmBERT). Without a warm-up, all batches are full.
    """

    warmup_steps: int
    first: int
    full: int

    @classmethod
    def of_phase(cls, train: Train, start: int) -> "BatchSizes":
        """Returns the sizes of a phase that starts at a step; only the first phase may grow."""
        warmup_steps = 0 if start else train.batch_warmup
        return cls(warmup_steps, train.first_microbatches, train.gradient_accumulation_steps)

    @property
    def grow(self) -> bool:
        """Whether the phase has a batch warm-up."""
        return self.warmup_steps > 0

    def ranges(self) -> list[tuple[int, int]]:
        """Returns (first step, microbatches per step) of each range of steps with equal batches."""
        sizes = max(1, self.full - self.first)
        starts = {-(-k * self.warmup_steps // sizes): self.first + k for k in range(sizes)}
        return list((starts | {self.warmup_steps: self.full}).items())

    def size(self, step: int) -> int:
        """Returns the number of microbatches of a step."""
        return next(size for start, size in reversed(self.ranges()) if start <= step)

    def before(self, step: int) -> int:
        """Returns the total number of microbatches in all steps before `step`."""
        ranges = self.ranges()
        ends = [*(start for start, _ in ranges[1:]), step]
        return sum(
            max(0, min(step, end) - start) * size
            for (start, size), end in zip(ranges, ends, strict=True)
        )

    def check(self, steps: int) -> None:
        """Refuses a warm-up that does not end within a phase of `steps` steps, or does not grow.

        Raises:
          ConfigError: with the keys to change.
        """
        warmup, first, full = KEYS
        if self.warmup_steps > steps:
            raise ConfigError(
                f"{warmup}={self.warmup_steps}: the batch warm-up must end by step {steps}, where "
                "the first of phases starts or, without phases, the run ends; lower it"
            )
        if self.grow and self.first >= self.full:
            raise ConfigError(
                f"{warmup}: batches grow from {first}={self.first} to {full}={self.full}, which "
                "must be larger"
            )
