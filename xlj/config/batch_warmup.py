"""Batch warm-up: the number of microbatches of a step, as a function of the step alone."""

from typing import NamedTuple


class BatchWarmup(NamedTuple):
    """Growth of batches from `first` microbatches to `parts` over the first `steps` steps.

    `parts` is the number of microbatches in a full batch. The numbers of steps at each size from
    `first` to `parts` - 1 differ by at most one. So the number of tokens that the run reads at a
    size is proportional to the size (ModernBERT, mmBERT).
    """

    steps: int
    first: int
    parts: int

    def stretches(self) -> list[tuple[int, int]]:
        """Returns (first step, microbatches per step) of each range of steps with equal batches."""
        sizes = max(1, self.parts - self.first)
        starts = {-(-k * self.steps // sizes): self.first + k for k in range(sizes)}
        return list((starts | {self.steps: self.parts}).items())

    def size(self, step: int) -> int:
        """Returns the number of microbatches of a step."""
        return next(size for start, size in reversed(self.stretches()) if start <= step)

    def before(self, step: int) -> int:
        """Returns the total number of microbatches in all steps before `step`."""
        stretches = self.stretches()
        ends = [*(start for start, _ in stretches[1:]), step]
        return sum(
            max(0, min(step, end) - start) * size
            for (start, size), end in zip(stretches, ends, strict=True)
        )
