"""Clipping of gradients by their global norm."""

import jax
import jax.numpy as jnp
import optax

from xlj.models.dense import cpu_layout_barrier
from xlj.models.encoder import Params


def clip(gradients: Params, limit: float) -> tuple[Params, jax.Array]:
    """Scales gradients down to a global norm of `limit` if their norm is above it.

    Args:
      limit: 0 means no limit.

    Returns:
      The gradients, and their global norm before scaling: the length of all gradients as one
      vector, float32 [].
    """
    # The barrier keeps XLA for CPUs from sharing the squares with AdamW, for which it would write
    # all of them to memory.
    norm = optax.tree.norm(cpu_layout_barrier(gradients))
    factor = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-12)) if limit else 1.0
    return jax.tree.map(lambda gradient: gradient * factor, gradients), norm
