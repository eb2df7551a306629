"""Clipping of gradients by their global norm."""

import jax
import jax.numpy as jnp
import optax

from xlj.models.dense import cpu_layout_barrier
from xlj.models.encoder import Params


def clip(gradients: Params, limit: float) -> tuple[Params, jax.Array]:
    """Gradients, scaled down where their global norm is above `limit` (0 means no limit), and that
    norm before: the length of all gradients as one vector, float32 [].

    The norm is of gradients that a CPU takes for others than the optimizer's: it would write all
    their squares, since AdamW takes these too.
    """
    norm = optax.tree.norm(cpu_layout_barrier(gradients))
    factor = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-12)) if limit else 1.0
    return jax.tree.map(lambda gradient: gradient * factor, gradients), norm
