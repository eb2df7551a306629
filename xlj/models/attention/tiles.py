"""The computation of a tile of queries and keys: the same mathematics on every backend.

Each kernel chooses the layout of its tiles, [queries, keys] or [keys, queries]. Numbers per query
and numbers per key are columns or rows of this layout, and broadcast to the tile.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from xlj.models import dropout, pallas
from xlj.models.attention import interface

NEGATIVE = -1e30
"""The score of a key that the query does not see. It is finite: with -inf, a query that sees no key
would compute -inf - (-inf), which is NaN."""

NO_QUERY, NO_KEY = -(2**31), -(2**31) + 1
"""Segment ids of padding queries and of padding keys. The two ids differ from each other and from
all ids of tokens, so padding queries see no key and no query sees padding keys."""


OptionalRef = Any
"""A kernel's reference to a block of an array (`jax.Ref`), or None if there is no such array."""
Carry = tuple[jax.Array, jax.Array, jax.Array]
"""What a kernel accumulates over blocks of keys, for each query of a block: the weighted sum of
values, the largest score so far, and the sum of exponentials."""
Shaped = jax.Array | jax.ShapeDtypeStruct
"""An array with the shape and dtype of an output, or a description of both without values."""


class Sizes(NamedTuple):
    """Static arguments of a kernel."""

    block: int
    """Number of queries and of keys in a tile."""
    rate: float
    """Rate of dropout of the attention probabilities; 0 for no dropout."""
    interpret: bool
    """Whether Pallas interprets the kernel, which is slow but runs on any platform."""
    window: int | None
    """The largest distance in the row at which a query sees a key; None for no window."""

    def kernel_name(self, kernel: str) -> str:
        """Returns the name of a kernel in compiled programs, which differs with a window."""
        return kernel if self.window is None else f"{kernel}_local"

    def cost(self, products: int, arrays: Sequence[Shaped], query: Shaped) -> pl.CostEstimate:
        """Returns the cost that a kernel states, as if it skipped no tile within the window.

        Args:
          products: number of matrix products for each tile.
          arrays: all inputs and outputs, each of which is read or written once.
          query: [rows, length, ...].
        """
        keys = keys_near(query.shape[1], self.block, self.window)
        return pallas.cost(2 * products * math.prod(query.shape) * keys, arrays)


def keys_near(length: int, block: int, window: int | None) -> int:
    """Returns the largest number of keys in the tiles that a block of queries visits."""
    return length if window is None else min(length, block * (1 + 2 * -(-window // block)))


class Inputs(NamedTuple):
    """The inputs of attention other than the bias; the length is a multiple of the block."""

    query: jax.Array
    """float [rows, length, heads, size]."""
    key: jax.Array
    """[rows, length, heads, size], of the dtype of `query`."""
    value: jax.Array
    """[rows, length, heads, size], of the dtype of `query`."""
    query_segment_ids: jax.Array
    """int32 [rows, length]."""
    key_segment_ids: jax.Array
    """int32 [rows, length]. A query sees the keys with the same segment id."""
    seeds: jax.Array
    """Seeds of dropout, int32 [rows, heads]."""
    gates: jax.Array | None
    """The factor of the bias for each query, float32 [rows, heads, length]; None for 1."""


class Bounds(NamedTuple):
    """Ranges [first, end) of blocks that a kernel visits, int32 [rows, blocks] each.

    A range includes all blocks with a visible pair of query and key. It is empty (first equals end)
    if there is no such block.
    """

    first_key: jax.Array
    """For each block of queries, the first block of keys."""
    end_key: jax.Array
    """For each block of queries, the end of the range of blocks of keys."""
    first_query: jax.Array
    """For each block of keys, the first block of queries."""
    end_query: jax.Array
    """For each block of keys, the end of the range of blocks of queries."""


def bounds(
    query_segment_ids: jax.Array,
    key_segment_ids: jax.Array,
    block: int,
    window: int | None = None,
) -> Bounds:
    """Returns the tiles that a kernel visits; in all other tiles, no query sees a key.

    With a window, the function compares only the ids of tiles within the window, so its time is
    linear in the length.

    Args:
      query_segment_ids, key_segment_ids: int32 [rows, length].
      block: number of queries, and of keys, in a tile; it divides the length.
      window: the largest distance in the row at which a query sees a key; None for no window.
    """
    if window is not None:
        query_ranges = _near(query_segment_ids, key_segment_ids, block, window)
        return Bounds(*query_ranges, *_near(key_segment_ids, query_segment_ids, block, window))
    rows, length = query_segment_ids.shape
    count = length // block
    keys = key_segment_ids.reshape(rows, 1, count, block)
    by_query = (query_segment_ids[..., None, None] == keys).any(3)
    visible = by_query.reshape(rows, count, block, count).any(2)

    def ends(visible: jax.Array) -> tuple[jax.Array, jax.Array]:
        index = jnp.arange(count, dtype=jnp.int32)
        first = jnp.where(visible, index, count).min(-1)
        end = jnp.where(visible, index + 1, 0).max(-1)
        return jnp.minimum(first, end), end

    return Bounds(*ends(visible), *ends(visible.swapaxes(1, 2)))


def _near(
    ids: jax.Array, others: jax.Array, block: int, window: int
) -> tuple[jax.Array, jax.Array]:
    """Returns, for each block of `ids`, the range of blocks of `others` with visible pairs.

    A pair of tokens is visible if their segment ids are equal and their distance in the row is at
    most `window`.

    Args:
      ids, others: segment ids of queries and keys, or of keys and queries, int32 [rows, length].

    Returns:
      The first block and the end of the range, int32 [rows, blocks] each.
    """
    rows, length = ids.shape
    count = length // block
    reach = min(-(-window // block), count - 1)
    blocks, inside = jnp.arange(count, dtype=jnp.int32), jnp.arange(block, dtype=jnp.int32)
    near = blocks[:, None] + jnp.arange(-reach, reach + 1, dtype=jnp.int32)  # [blocks, near]
    positions = (blocks[:, None] * block + inside)[:, None, :, None]  # [blocks, 1, block, 1]
    other_positions = near[:, :, None, None] * block + inside  # [blocks, near, 1, block]
    other_ids = others.reshape(rows, count, 1, block)[:, jnp.clip(near, 0, count - 1)]
    equal = ids.reshape(rows, count, 1, block, 1) == other_ids  # [rows, blocks, near, block, block]
    visible = (equal & interface.is_within(positions, other_positions, window)).any((3, 4))
    visible &= (near >= 0) & (near < count)
    first = jnp.where(visible, near, count).min(-1)
    end = jnp.where(visible, near + 1, 0).max(-1)
    return jnp.minimum(first, end), end


def dot(left: jax.Array, right: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """Multiplies two matrices of one dtype, with sums in float32; float32 factors are not rounded.

    Args:
      axes: the contracted axis of `left` and of `right`.
    """
    exact = left.dtype == jnp.float32
    return jax.lax.dot_general(
        left,
        right,
        (((axes[0],), (axes[1],)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if exact else None,
        preferred_element_type=jnp.float32,
    )


def exponentials(scores: jax.Array, visible: jax.Array, offset: jax.Array) -> jax.Array:
    """Computes exp(scores - offset) for visible keys, and 0 for all other keys.

    Args:
      scores: float32 tile.
      visible: bool tile.
      offset: for each query, its largest score so far, or the log of its sum of exponentials.
    """
    return jnp.where(visible, jnp.exp(jnp.where(visible, scores, NEGATIVE) - offset), 0.0)


def compute_grad_scores(
    weights: jax.Array,
    grad_weights: jax.Array,
    inner: jax.Array,
    visible: jax.Array,
    window: int | None,
) -> jax.Array:
    """Computes the gradient of the scores from the gradient of the attention weights.

    With a window, the gradient is exactly 0 for keys outside the window, even if `grad_weights` is
    not finite there.

    Args:
      weights, grad_weights: attention weights and their gradients, float32 tiles.
      inner: for each query, the inner product of the output and its gradient.
      visible: bool tile.
      window: the window of attention; only whether it is None matters.
    """
    result = weights * (grad_weights - inner)
    return result if window is None else jnp.where(visible, result, 0.0)


def log_sum(largest: jax.Array, total: jax.Array) -> jax.Array:
    """Computes the log of the sum of exponentials of the scores; 0 for a query that sees no key.

    Args:
      largest: for each query, the largest score.
      total: for each query, the sum of exp(score - largest).
    """
    return jnp.where(total > 0, largest + jnp.log(jnp.where(total > 0, total, 1.0)), 0.0)


def keep_factors(seed: jax.Array, queries: jax.Array, keys: jax.Array, rate: float) -> jax.Array:
    """Returns the factors of dropout for a tile of probabilities: 0 or `dropout.scale(rate)`.

    The mask is the one of `dropout.keep_mask` for arrays [heads, length, length].

    Args:
      seed: of a row and a head, int32.
      queries, keys: indices in the row, int32, of shapes that broadcast.
    """
    hashes = dropout.fold_in(dropout.fold_in(seed, queries), keys)
    return jnp.where(dropout.is_kept(hashes, rate), np.float32(dropout.scale(rate)), 0.0)


def drop(
    weights: jax.Array, seeds: jax.Array, queries: jax.Array, keys: jax.Array, rate: float
) -> jax.Array:
    """Applies dropout to the attention weights of some queries and keys of each head.

    Args:
      weights: float32 [rows, heads, ..., queries, keys].
      seeds: of rows, int32 [rows].
      queries, keys: indices in the row, int32 [..., queries, 1] and [..., 1, keys].

    Returns:
      float32, of the shape of `weights`.
    """
    heads = jnp.arange(weights.shape[1], dtype=jnp.int32)
    of_heads = dropout.fold_in(seeds[:, None], heads)
    of_heads = of_heads.reshape(*of_heads.shape, *(1,) * (weights.ndim - 2))
    return weights * keep_factors(of_heads, queries, keys, rate)
