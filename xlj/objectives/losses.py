"""What an objective returns: sums and counts, which the step normalises once and globally."""

from __future__ import annotations

import dataclasses

import jax


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LossSums:
    """A loss by row, float32 [rows] each (or summed over rows)."""

    sum: jax.Array
    """Sum of the losses of what was predicted."""
    count: jax.Array
    """How much was predicted."""
    correct: jax.Array
    """How much of it was predicted right."""
