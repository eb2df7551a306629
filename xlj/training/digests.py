"""Digests of arrays that do not depend on how they are sharded, to verify what was restored."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlj.training.partitioning import named_leaves

_SALTS = (0x9E3779B9, 0x85EBCA6B)


def digests(tree: Any) -> dict[str, str]:
    """64 bits of digest of each leaf, in hex, by name.

    Each element's bits are mixed with its index and the results summed in uint32, twice. Integer
    sums do not depend on their order, so any mesh gives the same digest, and any change of one
    element changes it (ours).

    One sum after the other: XLA holds a leaf's mixed bits on the way, and those of all leaves at
    once would be twice the model.
    """
    return {
        name: "".join(f"{int(_digest(leaf, np.uint32(salt))):08x}" for salt in _SALTS)
        for name, leaf in named_leaves(tree).items()
    }


@jax.jit
def _digest(array: jax.Array, salt: jax.Array) -> jax.Array:
    if array.dtype.itemsize == 4:
        bits = jax.lax.bitcast_convert_type(array, jnp.uint32)
    elif array.dtype == jnp.bfloat16:
        bits = jax.lax.bitcast_convert_type(array, jnp.uint16).astype(jnp.uint32)
    else:
        bits = array.astype(jnp.uint32)
    index = jnp.full(array.shape, salt, jnp.uint32)
    for axis in range(array.ndim):
        stride = math.prod(array.shape[axis + 1 :]) & 0xFFFFFFFF
        places = jax.lax.broadcasted_iota(jnp.uint32, array.shape, axis)
        index += places * jnp.uint32(stride)
    return _mix(bits ^ _mix(index)).sum(dtype=jnp.uint32)


def _mix(x: jax.Array) -> jax.Array:
    """A bijection of uint32 in which every bit depends on every other (Wellons' lowbias32)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
