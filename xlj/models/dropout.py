"""Dropout with masks that are a hash of (random key of the row, layer, site, position).

Masks are computed where they are used, forward and backward, and never stored. They are the same on
any mesh and with any gradient accumulation.
"""

import jax
import jax.numpy as jnp
import numpy as np

from xlj.contracts.arrays import check
from xlj.models.gradients import with_gradient

Rngs = jax.Array | None
"""A threefry key of each row [rows]; None means no dropout (evaluation)."""

_BITS = 24
"""Bits of a hash that are compared with the rate; they fit into signed integers on all backends."""


def row_seeds(rngs: jax.Array, layer: int | jax.Array, site: int) -> jax.Array:
    """Returns seeds for the masks of one place in the model, int32 [rows].

    Args:
      layer: 0 for the embeddings, then the layers, then heads.
      site: a number that identifies the place in the layer.
    """
    check("row_seeds", rngs=("key [rows]", rngs))
    words = jax.lax.bitcast_convert_type(jax.random.key_data(rngs), jnp.int32)
    seeds = jnp.full(len(words), 0x1E3779B9, jnp.int32)
    for word in words.T:
        seeds = fold_in(seeds, word)
    return fold_in(fold_in(seeds, layer), site)


def fold_in(seed: jax.Array, number: jax.Array | int) -> jax.Array:
    """Returns a new seed, int32, for each seed and number, which broadcast.

    The mixing function is Wellons' lowbias32 (2018): each input bit changes half of the output
    bits. Integers are signed, since kernels of all backends have these operations for them.
    """
    check("fold_in", seed=("int32 [...]", seed), number=("int [...]", number))
    x = seed ^ jnp.asarray(number, jnp.int32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ jax.lax.shift_right_logical(x, jnp.int32(shift))) * np.uint32(factor).view("i4")
    return x ^ jax.lax.shift_right_logical(x, jnp.int32(16))


def threshold(rate: float) -> int:
    """Returns how many of 2^24 hashes drop an element; rates are rounded to multiples of 2^-24."""
    return round(rate * 2**_BITS)


def is_kept(hashes: jax.Array, rate: float) -> jax.Array:
    """Returns whether the elements with these hashes, int32, are kept: bool of the same shape."""
    check("is_kept", hashes=("int32 [...]", hashes))
    return jax.lax.shift_right_logical(hashes, jnp.int32(32 - _BITS)) >= threshold(rate)


def scale(rate: float) -> float:
    """Returns the factor of the elements that are kept."""
    return 2**_BITS / (2**_BITS - threshold(rate))


def keep_mask(seeds: jax.Array, shape: tuple[int, ...], rate: float) -> jax.Array:
    """Returns the mask of arrays of this shape, bool [rows, *shape], from the rows' seeds [rows].

    A kernel that computes a part of the mask folds in the same indices, one axis after the other.
    """
    check("keep_mask", seeds=("int32 [rows]", seeds))
    hashes = seeds
    for size in shape:
        hashes = fold_in(hashes[..., None], jnp.arange(size, dtype=jnp.int32))
    return is_kept(hashes, rate)


def dropout(x: jax.Array, rngs: Rngs, layer: int | jax.Array, site: int, rate: float) -> jax.Array:
    """Sets elements of x to zero with probability `rate` and scales the others up.

    Args:
      x: [rows, ...].
      layer, site: as in `row_seeds`.

    Returns:
      float32 [rows, ...].
    """
    check("dropout", x=("float [rows, ...]", x), rngs=("key [rows]", rngs))
    return drop(x.astype(jnp.float32), None if rngs is None else row_seeds(rngs, layer, site), rate)


def drop(x: jax.Array, seeds: jax.Array | None, rate: float) -> jax.Array:
    """Applies dropout to x, float32 [rows, ...], with the rows' seeds, int32 [rows].

    Without seeds (None) it returns x.
    """
    check("drop", x=("float32 [rows, ...]", x), seeds=("int32 [rows]", seeds))
    return x if seeds is None or not threshold(rate) else _drop(x, seeds, rate)


def _forward(x: jax.Array, seeds: jax.Array, rate: float) -> tuple[jax.Array, jax.Array]:
    return jnp.where(keep_mask(seeds, x.shape[1:], rate), x * scale(rate), 0), seeds


def _backward(rate: float, seeds: jax.Array, gradient: jax.Array) -> tuple[jax.Array, None]:
    # The barrier makes XLA compute the mask again instead of saving it.
    return _drop(gradient, jax.lax.optimization_barrier(seeds), rate), None


_drop = with_gradient(_forward, _backward, static=(2,))
