"""Computes digests of arrays, to verify restored checkpoints; they do not depend on sharding."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from xlj.contracts.arrays import Array, PyTree
from xlj.sharding.trees import named_leaves

_SALTS = (0x9E3779B9, 0x85EBCA6B)
_MASK = 0xFFFFFFFF
_PIECE = 1 << 22  # number of elements of a leaf that are summed at a time


def digests(tree: PyTree) -> dict[str, str]:
    """Computes a 64-bit digest of each leaf, as hexadecimal text by name.

    The method is our own. It mixes the bits of each element with the element's index, and sums the
    results in uint32. It does so twice, with two salts, and joins the two sums of 32 bits. Integer
    sums do not depend on their order, so every mesh gives the same digest. A change of any single
    element changes the digest.

    A leaf is processed in pieces, because XLA keeps the mixed bits of its whole input in memory.
    """
    return {name: _digest_leaf(leaf) for name, leaf in named_leaves(tree).items()}


def _digest_leaf(leaf: Array) -> str:
    strides = [math.prod(leaf.shape[axis + 1 :]) & _MASK for axis in range(leaf.ndim)]
    axis = _find_unsharded_axis(leaf)
    size = leaf.shape[axis] if leaf.ndim else 1
    step = max(1, size * _PIECE // max(1, leaf.size))
    total = np.zeros(len(_SALTS), np.uint64)
    for start in range(0, size, step):
        piece = leaf[(slice(None),) * axis + (slice(start, start + step),)] if step < size else leaf
        first = start * strides[axis] if leaf.ndim else 0
        salts = [(salt + first) & _MASK for salt in _SALTS]
        total += np.asarray(_sums(piece, np.array(strides, np.uint32), np.array(salts, np.uint32)))
    return "".join(f"{int(number) & _MASK:08x}" for number in total)


def _find_unsharded_axis(leaf: Array) -> int:
    """Returns the first axis that is not sharded. Pieces along this axis need no data of other
    devices."""
    if not isinstance(leaf, jax.Array):
        return 0
    local = leaf.sharding.shard_shape(leaf.shape)
    return next((i for i in range(leaf.ndim) if local[i] == leaf.shape[i]), 0)


@jax.jit
def _sums(array: jax.Array, strides: jax.Array, salts: jax.Array) -> jax.Array:
    """Computes the sums of an array, or of a piece of an array, uint32 [salts].

    Args:
      strides: uint32 [axes], the distance of adjacent elements along each axis of the whole array.
      salts: uint32 [salts]; each is a salt plus the index of the piece's first element in the whole
        array.
    """
    if array.dtype.itemsize == 4:
        bits = jax.lax.bitcast_convert_type(array, jnp.uint32)
    elif array.dtype == jnp.bfloat16:
        bits = jax.lax.bitcast_convert_type(array, jnp.uint16).astype(jnp.uint32)
    else:
        bits = array.astype(jnp.uint32)
    index = jnp.zeros(array.shape, jnp.uint32)
    for axis in range(array.ndim):
        index += jax.lax.broadcasted_iota(jnp.uint32, array.shape, axis) * strides[axis]
    return jnp.stack([_mix(bits ^ _mix(index + salt)).sum(dtype=jnp.uint32) for salt in salts])


def _mix(x: jax.Array) -> jax.Array:
    """Mixes the bits of uint32 numbers by a bijection (Wellons' lowbias32)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
