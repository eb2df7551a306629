"""The batch warm-up: how many microbatches a step has, as a function of the step alone."""

from typing import NamedTuple


class BatchWarmup(NamedTuple):
    """Batches that grow from `first` microbatches to `parts` over the first `steps` steps.

    Each size from `first` to `parts` - 1 holds for as many steps as any other, to within one: in
    proportion to its size, then, counted in tokens (ModernBERT, mmBERT).
    """

    steps: int
    first: int
    parts: int

    def stretches(self) -> list[tuple[int, int]]:
        """(first step, microbatches) of each stretch of steps with batches of one size."""
        sizes = max(1, self.parts - self.first)
        starts = {-(-k * self.steps // sizes): self.first + k for k in range(sizes)}
        return list((starts | {self.steps: self.parts}).items())

    def size(self, step: int) -> int:
        """The microbatches of a step."""
        return next(size for start, size in reversed(self.stretches()) if start <= step)

    def before(self, step: int) -> int:
        """The microbatches of all steps before one."""
        stretches = self.stretches()
        ends = [*(start for start, _ in stretches[1:]), step]
        return sum(
            max(0, min(step, end) - start) * size
            for (start, size), end in zip(stretches, ends, strict=True)
        )
