"""Blocks of rows, for dense attention in a local window.

Each block of queries is multiplied with the keys of its own block and of both neighbours, so that
time and memory are linear in the length. The keys of the three blocks are called a span.
"""

import jax
import jax.numpy as jnp

from xlj.models import dropout
from xlj.models.fused_attention import tiles

_SMALLEST = 64
"""Fewest queries in a block: products of smaller blocks cost more time than they save."""
_FEWEST = 4
"""Fewest blocks in a row. Milliseconds forward / forward and backward of 4,096 tokens, 12 heads of
size 64 and a window of 64, on two CPU cores, with all pairs (square) and in blocks:

    length            192       256       384       512      1024      2048
    float32 square  89/197   122/285   147/336   199/505   344/993  518/1342
    float32 blocks 129/259   137/284   132/241   124/240   154/255   133/220
    bfloat16 square 60/121    86/154    92/218   115/266   228/523
    bfloat16 blocks 71/130    80/124    80/127    72/125    96/145
"""


def block_of(length: int, window: int | None) -> int | None:
    """Returns the number of queries in a block, or None if blocks would not save time.

    It is at least the window, so that no query sees keys beyond the neighbouring blocks.
    """
    if window is None:
        return None
    block = max(_SMALLEST, window + -window % 16)
    return block if _FEWEST * block <= length else None


def blocks(x: jax.Array, block: int) -> jax.Array:
    """Reshapes [..., length, size] -> [..., blocks, block, size]; the last block is padded with
    zeros."""
    *others, length, size = x.shape
    if fill := -length % block:
        x = jnp.pad(x, [*_unpadded(others), (0, fill), (0, 0)])
    return x.reshape(*others, -1, block, size)


def spans(x: jax.Array, block: int) -> jax.Array:
    """Maps [..., length, size] -> [..., blocks, 3 block, size]: each block between its neighbours.

    The missing neighbours of the first and last block are zeros.
    """
    own = blocks(x, block)
    wide = jnp.pad(own, [*_unpadded(own.shape[:-3]), (1, 1), (0, 0), (0, 0)])
    return jnp.concatenate([wide[..., :-2, :, :], own, wide[..., 2:, :, :]], axis=-2)


def rows_of(x: jax.Array, length: int) -> jax.Array:
    """Reshapes [..., blocks, block, size] -> [..., length, size]: the inverse of `blocks`."""
    return x.reshape(*x.shape[:-3], -1, x.shape[-1])[..., :length, :]


def sum_of_spans(x: jax.Array, length: int) -> jax.Array:
    """Maps [..., blocks, 3 block, size] -> [..., length, size]: the gradient of `spans`."""
    before, own, behind = jnp.split(x, 3, axis=-2)
    others = _unpadded(x.shape[:-3])
    from_next = jnp.pad(before[..., 1:, :, :], [*others, (0, 1), (0, 0), (0, 0)])
    from_last = jnp.pad(behind[..., :-1, :, :], [*others, (1, 0), (0, 0), (0, 0)])
    return rows_of(own + from_next + from_last, length)


def visible(query_ids: jax.Array, key_ids: jax.Array, block: int, window: int) -> jax.Array:
    """Returns which keys of its span a query sees: bool [rows, blocks, block, 3 block].

    Args:
      query_ids, key_ids: int32 [rows, length].
    """
    length = key_ids.shape[1]
    queries, keys = _places(length, block)
    inside = (keys >= 0) & (keys < length) & tiles.is_within(queries, keys, window)
    of_keys = spans(key_ids[..., None], block).swapaxes(2, 3)  # [rows, blocks, 1, 3 block]
    return (blocks(query_ids[..., None], block) == of_keys) & inside


def drop(weights: jax.Array, seeds: jax.Array | None, rate: float, length: int) -> jax.Array:
    """Applies dropout to float32 [rows, heads, blocks, block, 3 block].

    The masks are those of `dropout.drop` at the same places of [rows, heads, length, length].
    """
    if seeds is None or not dropout.threshold(rate):
        return weights
    heads = jnp.arange(weights.shape[1], dtype=jnp.int32)
    of_heads = dropout.fold_in(seeds[:, None], heads)[..., None, None, None]
    return weights * tiles.keep_factors(of_heads, *_places(length, weights.shape[3]), rate)


def _places(length: int, block: int) -> tuple[jax.Array, jax.Array]:
    """Returns the places of queries and of the keys of their spans in the row.

    Returns:
      int32 [blocks, block, 1] and [blocks, 1, 3 block]. Padding keys have places outside the row.
    """
    starts = jnp.arange(0, length, block, dtype=jnp.int32)[:, None]
    queries = starts + jnp.arange(block, dtype=jnp.int32)
    keys = starts + jnp.arange(-block, 2 * block, dtype=jnp.int32)
    return queries[:, :, None], keys[:, None, :]


def _unpadded(axes: tuple[int, ...] | list[int]) -> list[tuple[int, int]]:
    return [(0, 0)] * len(axes)
