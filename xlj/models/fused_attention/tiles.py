"""What kernels compute in a tile of queries and keys: the same mathematics on every backend.

A tile lies as its kernel wants it, [queries, keys] or [keys, queries]; vectors of its queries and
keys come as columns and rows accordingly, and broadcast.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlj.models import dropout

NEGATIVE = -1e30
"""The score of a key that is not seen: finite, so that rows of them stay finite."""

NO_QUERY, NO_KEY = -(2**31), -(2**31) + 1
"""Segment ids of the places that fill up a block: they see nothing, and nothing sees them."""


GivenRef = Any
"""A kernel's reference to a block of an array (`jax.Ref`), or None where there is no such array."""
Carry = tuple[jax.Array, jax.Array, jax.Array]
"""Of a block of queries: what is summed of the values, the largest score, and what is summed of the
exponentials."""
Shaped = jax.Array | jax.ShapeDtypeStruct
"""What an output is like."""


class Sizes(NamedTuple):
    """What a kernel is compiled for."""

    block: int
    """Queries and keys of a tile."""
    rate: float
    """Dropout of the attention probabilities; 0 for none."""
    interpret: bool
    """Run as plain JAX, on a CPU."""
    window: int | None
    """The largest distance of places at which a query sees a key; None for any."""

    def named(self, kernel: str) -> str:
        """The name of a kernel in compiled programs: with a window it tells, for those who count
        operations, how many keys lie in the tiles that a query's tile visits at most."""
        if self.window is None:
            return kernel
        return f"{kernel}_near{self.block * (1 + 2 * -(-self.window // self.block))}"


class Inputs(NamedTuple):
    """What attention is computed of, but for the bias; the length is a multiple of the block."""

    query: jax.Array
    """[rows, length, heads, size], as `key` and `value`."""
    key: jax.Array
    value: jax.Array
    query_segment_ids: jax.Array
    """int32 [rows, length], as `key_segment_ids`."""
    key_segment_ids: jax.Array
    seeds: jax.Array
    """int32 [rows, heads]."""
    gates: jax.Array | None
    """float32 [rows, heads, length]."""


class Bounds(NamedTuple):
    """Of each block, the first block of the other side that it sees and the end of them, int32
    [rows, blocks]; equal where it sees none."""

    first_key: jax.Array
    end_key: jax.Array
    first_query: jax.Array
    end_query: jax.Array


def bounds(
    query_segment_ids: jax.Array,
    key_segment_ids: jax.Array,
    block: int,
    window: int | None = None,
) -> Bounds:
    """Which tiles a kernel visits: those outside are not seen by any query.

    With a window a query sees keys at most that many places away. Then only tiles that near are
    compared, which takes time linear in the length.
    """
    if window is not None:
        of_queries = _near(query_segment_ids, key_segment_ids, block, window)
        return Bounds(*of_queries, *_near(key_segment_ids, query_segment_ids, block, window))
    rows, length = query_segment_ids.shape
    count = length // block
    keys = key_segment_ids.reshape(rows, 1, count, block)
    by_query = (query_segment_ids[..., None, None] == keys).any(3)
    seen = by_query.reshape(rows, count, block, count).any(2)

    def ends(seen: jax.Array) -> tuple[jax.Array, jax.Array]:
        place = jnp.arange(count, dtype=jnp.int32)
        first = jnp.where(seen, place, count).min(-1)
        end = jnp.where(seen, place + 1, 0).max(-1)
        return jnp.minimum(first, end), end

    return Bounds(*ends(seen), *ends(seen.swapaxes(1, 2)))


def _near(
    ids: jax.Array, others: jax.Array, block: int, window: int
) -> tuple[jax.Array, jax.Array]:
    """Of each block of `ids`, the first block and the end of those in `others` where an equal id is
    at most `window` places away.

    Args:
      ids, others: int32 [rows, length].

    Returns:
      int32 [rows, blocks], twice.
    """
    rows, length = ids.shape
    count = length // block
    reach = min(-(-window // block), count - 1)
    blocks, inside = jnp.arange(count, dtype=jnp.int32), jnp.arange(block, dtype=jnp.int32)
    near = blocks[:, None] + jnp.arange(-reach, reach + 1, dtype=jnp.int32)  # [blocks, near]
    places = (blocks[:, None] * block + inside)[:, None, :, None]  # [blocks, 1, block, 1]
    of_others = near[:, :, None, None] * block + inside  # [blocks, near, 1, block]
    beside = others.reshape(rows, count, 1, block)[:, jnp.clip(near, 0, count - 1)]
    equal = ids.reshape(rows, count, 1, block, 1) == beside  # [rows, blocks, near, block, block]
    seen = (equal & is_within(places, of_others, window)).any((3, 4))
    seen &= (near >= 0) & (near < count)
    first = jnp.where(seen, near, count).min(-1)
    end = jnp.where(seen, near + 1, 0).max(-1)
    return jnp.minimum(first, end), end


def is_within(queries: jax.Array, keys: jax.Array, window: int) -> jax.Array:
    """Whether places, int32, are at most `window` apart: bool, of the shape they broadcast to."""
    distance = queries - keys
    return (distance <= window) & (distance >= -window)


def narrowing(window: int | None, length: int) -> int | None:
    """The window; None if every place of a row of this length is within it."""
    return None if window is None or window >= length - 1 else window


def dot(left: jax.Array, right: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """A product that sums over one axis of each, in float32; float32 factors stay float32."""
    exact = left.dtype == jnp.float32
    return jax.lax.dot_general(
        left,
        right,
        (((axes[0],), (axes[1],)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if exact else None,
        preferred_element_type=jnp.float32,
    )


def exponentials(scores: jax.Array, seen: jax.Array, above: jax.Array) -> jax.Array:
    """exp(scores - above) of the keys that are seen, 0 of the others."""
    return jnp.where(seen, jnp.exp(jnp.where(seen, scores, NEGATIVE) - above), 0.0)


def of_scores(
    weights: jax.Array, of_weights: jax.Array, inner: jax.Array, seen: jax.Array, window: int | None
) -> jax.Array:
    """The softmax's gradient. With a window, keys outside give 0 even where the product of their
    value and the gradient is not finite."""
    found = weights * (of_weights - inner)
    return found if window is None else jnp.where(seen, found, 0.0)


def log_sum(largest: jax.Array, total: jax.Array) -> jax.Array:
    """The logarithm of the sum of exponentials; 0 for a query without a key."""
    return jnp.where(total > 0, largest + jnp.log(jnp.where(total > 0, total, 1.0)), 0.0)


def keeps(seed: jax.Array, queries: jax.Array, keys: jax.Array, rate: float) -> jax.Array:
    """What dropout multiplies probabilities by, as `dropout.kept` of [heads, length, length].

    Args:
      seed: int32, of a row and a head.
      queries, keys: int32, places in the row.
    """
    hashes = dropout.hashed(dropout.hashed(seed, queries), keys)
    return jnp.where(dropout.is_kept(hashes, rate), np.float32(dropout.scale(rate)), 0.0)
