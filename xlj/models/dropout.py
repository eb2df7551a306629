"""Dropout with masks that are computed by a hash function and never stored.

A hash decides whether an element is kept. It depends on the random key of the row, the layer, the
site (which dropout of the layer it is) and the indices of the element. The forward and the backward
pass compute the mask where they need it. A mask does not depend on the mesh or on the number of
microbatches.
"""

import jax
import jax.numpy as jnp
import numpy as np

from xlj.contracts.arrays import check
from xlj.models.lowering import recomputed, with_gradient

Rngs = jax.Array | None
"""A threefry key for each row, [rows]; None means no dropout (evaluation)."""

_BITS = 24
"""Number of bits of a hash that are compared with the rate. Numbers of 24 bits are non-negative as
int32, so all backends compare them correctly."""


def row_seeds(rngs: jax.Array, layer: int | jax.Array, site: int) -> jax.Array:
    """Returns seeds for the masks of one dropout in the model, int32 [rows].

    Args:
      rngs: a threefry key for each row, [rows].
      layer: 0 for the embeddings, 1 to n for the n layers, n + 1 for heads.
      site: a number that identifies the dropout within the layer.
    """
    check("row_seeds", rngs=("key [rows]", rngs))
    words = jax.lax.bitcast_convert_type(jax.random.key_data(rngs), jnp.int32)
    seeds = jnp.full(len(words), 0x1E3779B9, jnp.int32)  # an arbitrary non-zero start
    for word in words.T:
        seeds = fold_in(seeds, word)
    return fold_in(fold_in(seeds, layer), site)


def fold_in(seed: jax.Array, number: jax.Array | int) -> jax.Array:
    """Returns a new seed for each pair of a seed and a number.

    The mixing function is lowbias32 (Wellons, 2018): each input bit changes about half of the
    output bits. The integers are signed, since kernels of all backends support these operations for
    int32.

    Args:
      seed: int32 [...].
      number: int [...], of a shape that broadcasts with `seed`.

    Returns:
      int32 of the broadcast shape.
    """
    check("fold_in", seed=("int32 [...]", seed), number=("int [...]", number))
    x = seed ^ jnp.asarray(number, jnp.int32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ jax.lax.shift_right_logical(x, jnp.int32(shift))) * np.uint32(factor).view("i4")
    return x ^ jax.lax.shift_right_logical(x, jnp.int32(16))


def threshold(rate: float) -> int:
    """Returns the smallest 24-bit hash whose element is kept: rate * 2^24, rounded."""
    return round(rate * 2**_BITS)


def is_kept(hashes: jax.Array, rate: float) -> jax.Array:
    """Returns which elements are kept: hashes int32 [...] -> bool [...]."""
    check("is_kept", hashes=("int32 [...]", hashes))
    return jax.lax.shift_right_logical(hashes, jnp.int32(32 - _BITS)) >= threshold(rate)


def scale(rate: float) -> float:
    """Returns the factor of kept elements: 1 / (1 - rate), with the rounded rate."""
    return 2**_BITS / (2**_BITS - threshold(rate))


def keep_mask(seeds: jax.Array, shape: tuple[int, ...], rate: float) -> jax.Array:
    """Returns the mask of arrays [rows, *shape]: True for elements that are kept.

    A kernel that computes a part of the mask folds the same indices into the seeds, one axis after
    the other.

    Args:
      seeds: of the rows, int32 [rows].

    Returns:
      bool [rows, *shape].
    """
    check("keep_mask", seeds=("int32 [rows]", seeds))
    hashes = seeds
    for size in shape:
        hashes = fold_in(hashes[..., None], jnp.arange(size, dtype=jnp.int32))
    return is_kept(hashes, rate)


def dropout(x: jax.Array, rngs: Rngs, layer: int | jax.Array, site: int, rate: float) -> jax.Array:
    """Sets elements of x to 0 with probability `rate`, and multiplies the others by `scale(rate)`.

    Args:
      x: float [rows, ...].
      rngs: a threefry key for each row, [rows]; None for no dropout.
      layer: 0 for the embeddings, 1 to n for the n layers, n + 1 for heads.
      site: a number that identifies the dropout within the layer.
      rate: from 0 to below 1.

    Returns:
      float32 [rows, ...].
    """
    check("dropout", x=("float [rows, ...]", x), rngs=("key [rows]", rngs))
    return drop(x.astype(jnp.float32), None if rngs is None else row_seeds(rngs, layer, site), rate)


def drop(x: jax.Array, seeds: jax.Array | None, rate: float) -> jax.Array:
    """Sets elements of x to 0 with probability `rate`, and multiplies the others by `scale(rate)`.

    Args:
      x: float32 [rows, ...].
      seeds: of the rows, int32 [rows]; None returns x unchanged.

    Returns:
      float32 [rows, ...].
    """
    check("drop", x=("float32 [rows, ...]", x), seeds=("int32 [rows]", seeds))
    return x if seeds is None or not threshold(rate) else _drop(x, seeds, rate)


def _forward(x: jax.Array, seeds: jax.Array, rate: float) -> tuple[jax.Array, jax.Array]:
    return jnp.where(keep_mask(seeds, x.shape[1:], rate), x * scale(rate), 0), seeds


def _backward(rate: float, seeds: jax.Array, gradient: jax.Array) -> tuple[jax.Array, None]:
    return _drop(gradient, recomputed(seeds), rate), None


_drop = with_gradient(_forward, _backward, static=(2,))
