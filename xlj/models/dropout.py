"""Dropout whose masks are a hash of (row's key, layer, site, position): computed where they are
used, forward and backward, never stored, and the same on any mesh and under accumulation."""

import jax
import jax.numpy as jnp
import numpy as np

from xlj.contracts.arrays import check
from xlj.models.gradients import with_gradient

Rngs = jax.Array | None
"""A threefry key of each row [rows]; None means no dropout (evaluation)."""

_BITS = 24
"""Of a hash, which are compared with the rate: signed numbers of all backends hold them."""


def row_seeds(rngs: jax.Array, layer: int | jax.Array, site: int) -> jax.Array:
    """What tells the masks of a place in the model from all others, int32 [rows].

    Args:
      layer: 0 for the embeddings, then the layers, then heads.
      site: a number that tells this place in the layer from the others.
    """
    check("row_seeds", rngs=("key [rows]", rngs))
    words = jax.lax.bitcast_convert_type(jax.random.key_data(rngs), jnp.int32)
    seeds = jnp.full(len(words), 0x1E3779B9, jnp.int32)
    for word in words.T:
        seeds = hashed(seeds, word)
    return hashed(hashed(seeds, layer), site)


def hashed(seed: jax.Array, number: jax.Array | int) -> jax.Array:
    """A new seed, int32, for each seed and number, which broadcast.

    The mixing function is Wellons' lowbias32 (2018): each bit of the sum changes half of the
    result's. Signed, since kernels of all backends have these operations for signed integers.
    """
    check("hashed", seed=("int32 [...]", seed), number=("int [...]", number))
    x = seed ^ jnp.asarray(number, jnp.int32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ jax.lax.shift_right_logical(x, jnp.int32(shift))) * np.uint32(factor).view("i4")
    return x ^ jax.lax.shift_right_logical(x, jnp.int32(16))


def threshold(rate: float) -> int:
    """The hashes that drop an element, of 2^24: rates are rounded to multiples of that."""
    return round(rate * 2**_BITS)


def is_kept(hashes: jax.Array, rate: float) -> jax.Array:
    """Whether the elements of these hashes, int32, stay: bool of their shape."""
    check("is_kept", hashes=("int32 [...]", hashes))
    return jax.lax.shift_right_logical(hashes, jnp.int32(32 - _BITS)) >= threshold(rate)


def scale(rate: float) -> float:
    """What the elements that stay are multiplied by."""
    return 2**_BITS / (2**_BITS - threshold(rate))


def kept(seeds: jax.Array, shape: tuple[int, ...], rate: float) -> jax.Array:
    """The mask of arrays of this shape, bool [rows, *shape], of the rows' seeds [rows].

    A kernel that makes a part of it folds the same indices, one axis after the other.
    """
    check("kept", seeds=("int32 [rows]", seeds))
    hashes = seeds
    for size in shape:
        hashes = hashed(hashes[..., None], jnp.arange(size, dtype=jnp.int32))
    return is_kept(hashes, rate)


def dropout(x: jax.Array, rngs: Rngs, layer: int | jax.Array, site: int, rate: float) -> jax.Array:
    """Zeroes elements of x with probability `rate` and scales the others up.

    Args:
      x: [rows, ...].
      layer, site: as in `row_seeds`.

    Returns:
      float32 [rows, ...].
    """
    check("dropout", x=("float [rows, ...]", x), rngs=("key [rows]", rngs))
    return drop(x.astype(jnp.float32), None if rngs is None else row_seeds(rngs, layer, site), rate)


def drop(x: jax.Array, seeds: jax.Array | None, rate: float) -> jax.Array:
    """Dropout of x, float32 [rows, ...], by the rows' seeds, int32 [rows]; None for none."""
    check("drop", x=("float32 [rows, ...]", x), seeds=("int32 [rows]", seeds))
    return x if seeds is None or not threshold(rate) else _dropped(x, seeds, rate)


def _forward(x: jax.Array, seeds: jax.Array, rate: float) -> tuple[jax.Array, jax.Array]:
    return jnp.where(kept(seeds, x.shape[1:], rate), x * scale(rate), 0), seeds


def _backward(rate: float, seeds: jax.Array, gradient: jax.Array) -> tuple[jax.Array, None]:
    # Else XLA would find that it has made the mask already, and keep it.
    return _dropped(gradient, jax.lax.optimization_barrier(seeds), rate), None


_dropped = with_gradient(_forward, _backward, static=(2,))
