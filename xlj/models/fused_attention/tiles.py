"""The computation of a tile of queries and keys: the same mathematics on every backend.

Each kernel chooses the layout of its tiles, [queries, keys] or [keys, queries]. Vectors of queries
and keys are passed as columns and rows accordingly, and broadcast.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlj.models import dropout

NEGATIVE = -1e30
"""The score of a key that the query does not see: finite, so that no NaN arises if all are such."""

NO_QUERY, NO_KEY = -(2**31), -(2**31) + 1
"""Segment ids of padding queries and keys: they see nothing, and nothing sees them."""


OptionalRef = Any
"""A kernel's reference to a block of an array (`jax.Ref`), or None without such an array."""
Carry = tuple[jax.Array, jax.Array, jax.Array]
"""For a block of queries: weighted sums of values, the largest score, and sums of exponentials."""
Shaped = jax.Array | jax.ShapeDtypeStruct
"""An array with the shape and type of an output."""


class Sizes(NamedTuple):
    """Static arguments of a kernel."""

    block: int
    """Number of queries and of keys in a tile."""
    rate: float
    """Dropout of the attention probabilities; 0 for none."""
    interpret: bool
    """Whether to run as plain JAX, on a CPU."""
    window: int | None
    """The largest distance of places at which a query sees a key; None for no window."""

    def kernel_name(self, kernel: str) -> str:
        """Returns the name of a kernel in compiled programs.

        With a window, the name has the largest number of keys in the tiles that a block of queries
        visits. Counters of operations read it.
        """
        if self.window is None:
            return kernel
        return f"{kernel}_near{self.block * (1 + 2 * -(-self.window // self.block))}"


class Inputs(NamedTuple):
    """The inputs of attention other than the bias; the length is a multiple of the block."""

    query: jax.Array
    """[rows, length, heads, size], like `key` and `value`."""
    key: jax.Array
    value: jax.Array
    query_segment_ids: jax.Array
    """int32 [rows, length], like `key_segment_ids`."""
    key_segment_ids: jax.Array
    seeds: jax.Array
    """int32 [rows, heads]."""
    gates: jax.Array | None
    """float32 [rows, heads, length]."""


class Bounds(NamedTuple):
    """For each block, the range [first, end) of blocks of the other side with visible pairs.

    int32 [rows, blocks] each; first and end are equal without any.
    """

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
    """Returns the tiles that a kernel visits; no query sees a key in any other tile.

    With a window, only tiles within its distance are compared, so the time is linear in the length.
    """
    if window is not None:
        of_queries = _near(query_segment_ids, key_segment_ids, block, window)
        return Bounds(*of_queries, *_near(key_segment_ids, query_segment_ids, block, window))
    rows, length = query_segment_ids.shape
    count = length // block
    keys = key_segment_ids.reshape(rows, 1, count, block)
    by_query = (query_segment_ids[..., None, None] == keys).any(3)
    visible = by_query.reshape(rows, count, block, count).any(2)

    def ends(visible: jax.Array) -> tuple[jax.Array, jax.Array]:
        place = jnp.arange(count, dtype=jnp.int32)
        first = jnp.where(visible, place, count).min(-1)
        end = jnp.where(visible, place + 1, 0).max(-1)
        return jnp.minimum(first, end), end

    return Bounds(*ends(visible), *ends(visible.swapaxes(1, 2)))


def _near(
    ids: jax.Array, others: jax.Array, block: int, window: int
) -> tuple[jax.Array, jax.Array]:
    """Returns for each block of `ids` the range of blocks of `others` with visible pairs.

    A pair is visible if its ids are equal and its places are at most `window` apart.

    Args:
      ids, others: int32 [rows, length].

    Returns:
      The first block and the end of the range, int32 [rows, blocks] each.
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
    visible = (equal & is_within(places, of_others, window)).any((3, 4))
    visible &= (near >= 0) & (near < count)
    first = jnp.where(visible, near, count).min(-1)
    end = jnp.where(visible, near + 1, 0).max(-1)
    return jnp.minimum(first, end), end


def is_within(queries: jax.Array, keys: jax.Array, window: int) -> jax.Array:
    """Returns whether places, int32, are at most `window` apart: bool of their broadcast shape."""
    distance = queries - keys
    return (distance <= window) & (distance >= -window)


def narrowing(window: int | None, length: int) -> int | None:
    """Returns the window, or None if it includes all places of a row of this length."""
    return None if window is None or window >= length - 1 else window


def dot(left: jax.Array, right: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """Multiplies matrices over one axis of each, in float32; float32 factors are not rounded."""
    exact = left.dtype == jnp.float32
    return jax.lax.dot_general(
        left,
        right,
        (((axes[0],), (axes[1],)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if exact else None,
        preferred_element_type=jnp.float32,
    )


def exponentials(scores: jax.Array, visible: jax.Array, above: jax.Array) -> jax.Array:
    """Computes exp(scores - above) for visible keys, 0 for others."""
    return jnp.where(visible, jnp.exp(jnp.where(visible, scores, NEGATIVE) - above), 0.0)


def of_scores(
    weights: jax.Array,
    of_weights: jax.Array,
    inner: jax.Array,
    visible: jax.Array,
    window: int | None,
) -> jax.Array:
    """Computes the gradient of the scores from that of the weights.

    With a window, keys outside get exactly 0, also if the product of their value and the gradient
    is not finite.
    """
    result = weights * (of_weights - inner)
    return result if window is None else jnp.where(visible, result, 0.0)


def log_sum(largest: jax.Array, total: jax.Array) -> jax.Array:
    """Computes the logarithm of the sum of exponentials; 0 for a query that sees no key."""
    return jnp.where(total > 0, largest + jnp.log(jnp.where(total > 0, total, 1.0)), 0.0)


def keep_factors(seed: jax.Array, queries: jax.Array, keys: jax.Array, rate: float) -> jax.Array:
    """Returns the factors of dropout for a tile of probabilities.

    The mask is that of `dropout.keep_mask` for arrays [heads, length, length].

    Args:
      seed: int32, of a row and a head.
      queries, keys: int32, places in the row.
    """
    hashes = dropout.fold_in(dropout.fold_in(seed, queries), keys)
    return jnp.where(dropout.is_kept(hashes, rate), np.float32(dropout.scale(rate)), 0.0)
