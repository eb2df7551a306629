"""Sums and counts of a loss, which the step normalises once, over all rows, and globally."""

import dataclasses

import jax


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LossSums:
    """A loss by row, float32 [rows] each (or summed over rows)."""

    sum: jax.Array
    """Sum of the losses of all predictions."""
    count: jax.Array
    """Number of predictions."""
    correct: jax.Array
    """Number of right predictions."""
