"""Random keys as functions of (seed, purpose, step, row), the same on any number of devices."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from xlj.io.hashing import name_hash


def row_rngs(seed: ArrayLike, purpose: str, step: jax.Array | int, slots: jax.Array) -> jax.Array:
    """Returns a threefry key for each row of a global batch, [rows].

    Args:
      seed: an integer from 0 to 2^32 - 1.
      purpose: a name for the use of the keys, e.g. `mmlm/corruption`.
      step: zero-based, int32 [].
      slots: the index of each row in the global batch, int32 [rows].
    """
    rng = jax.random.key(seed, impl="threefry2x32")  # rbg keys depend on the batch size under vmap
    rng = jax.random.fold_in(rng, jnp.uint32(name_hash(purpose) & 0xFFFFFFFF))
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(rng, step), slots)
