"""Clipping of gradients by their global norm."""

import jax
import jax.numpy as jnp
import optax

from xlj.models.lowering import cpu_layout_barrier
from xlj.sharding.trees import Params


def clip(gradients: Params, limit: float) -> tuple[Params, jax.Array]:
    """Scales gradients so that their global norm is at most `limit`.

    Args:
      limit: 0 means no limit.

    Returns:
      The gradients, and their global norm before scaling, float32 []. The global norm is the length
      of all gradients as one vector.
    """
    # Both the norm and AdamW square the gradients. Without the barrier, XLA for CPUs would share
    # the squares and write all of them to memory.
    norm = optax.tree.norm(cpu_layout_barrier(gradients))
    factor = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-12)) if limit else 1.0
    return jax.tree.map(lambda gradient: gradient * factor, gradients), norm
