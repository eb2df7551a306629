"""Division of rows into blocks of tokens, for dense attention in a local window.

Each block of queries is multiplied with the keys of three blocks: the block with the same number
and its two neighbours. So time and memory are linear in the length. The keys of the three blocks
are called the span of the block.
"""

import jax
import jax.numpy as jnp

from xlj.models import dropout
from xlj.models.fused_attention import tiles

_SMALLEST = 64
"""The smallest number of queries in a block. Products of smaller blocks cost more time than they
save."""
_FEWEST = 4
"""The smallest number of blocks in a row for which blocks are used.

Measured with 4,096 tokens, 12 heads of size 64 and a window of 64, on two CPU cores. Each cell has
two times in milliseconds: forward / forward and backward. `square` computes all pairs of a row.

    length            192       256       384       512      1024      2048
    float32 square  89/197   122/285   147/336   199/505   344/993  518/1342
    float32 blocks 129/259   137/284   132/241   124/240   154/255   133/220
    bfloat16 square 60/121    86/154    92/218   115/266   228/523
    bfloat16 blocks 71/130    80/124    80/127    72/125    96/145
"""


def block_of(length: int, window: int | None) -> int | None:
    """Returns the number of queries in a block, or None if blocks would not save time.

    A block is at least as long as the window, so a query sees only keys of its span.

    Args:
      length: of a row.
      window: the largest distance in the row at which a query sees a key; None for no window.
    """
    if window is None:
        return None
    block = max(_SMALLEST, window + -window % 16)
    return block if _FEWEST * block <= length else None


def split_blocks(x: jax.Array, block: int) -> jax.Array:
    """Reshapes [..., length, size] -> [..., blocks, block, size].

    Zeros fill up the last block.
    """
    *leading_axes, length, size = x.shape
    if fill := -length % block:
        x = jnp.pad(x, [*_unpadded(leading_axes), (0, fill), (0, 0)])
    return x.reshape(*leading_axes, -1, block, size)


def gather_spans(x: jax.Array, block: int) -> jax.Array:
    """Maps [..., length, size] -> [..., blocks, 3 block, size]: each block between its neighbours.

    The first block has zeros before it, the last block has zeros after it.
    """
    blocks_of_x = split_blocks(x, block)
    wide = jnp.pad(blocks_of_x, [*_unpadded(blocks_of_x.shape[:-3]), (1, 1), (0, 0), (0, 0)])
    return jnp.concatenate([wide[..., :-2, :, :], blocks_of_x, wide[..., 2:, :, :]], axis=-2)


def join_blocks(x: jax.Array, length: int) -> jax.Array:
    """Reshapes [..., blocks, block, size] -> [..., length, size]; the inverse of `split_blocks`.

    It drops the zeros that fill up the last block.
    """
    return x.reshape(*x.shape[:-3], -1, x.shape[-1])[..., :length, :]


def sum_spans(x: jax.Array, length: int) -> jax.Array:
    """Maps [..., blocks, 3 block, size] -> [..., length, size]: the transpose of `gather_spans`.

    A token occurs in up to three spans. Its result is the sum of its vectors in these spans, which
    is the gradient of `gather_spans`.
    """
    before_block, same_block, after_block = jnp.split(x, 3, axis=-2)
    unpadded = _unpadded(x.shape[:-3])
    from_next = jnp.pad(before_block[..., 1:, :, :], [*unpadded, (0, 1), (0, 0), (0, 0)])
    from_last = jnp.pad(after_block[..., :-1, :, :], [*unpadded, (1, 0), (0, 0), (0, 0)])
    return join_blocks(same_block + from_next + from_last, length)


def find_visible(query_ids: jax.Array, key_ids: jax.Array, block: int, window: int) -> jax.Array:
    """Returns which keys of its span a query sees.

    Args:
      query_ids, key_ids: segment ids, int32 [rows, length].
      block: number of queries in a block.
      window: the largest distance in the row at which a query sees a key.

    Returns:
      bool [rows, blocks, block, 3 block].
    """
    length = key_ids.shape[1]
    queries, keys = _places(length, block)
    inside = (keys >= 0) & (keys < length) & tiles.is_within(queries, keys, window)
    span_ids = gather_spans(key_ids[..., None], block).swapaxes(2, 3)  # [rows, blocks, 1, 3 block]
    return (split_blocks(query_ids[..., None], block) == span_ids) & inside


def drop(weights: jax.Array, seeds: jax.Array | None, rate: float, length: int) -> jax.Array:
    """Applies dropout to the attention weights of spans.

    The mask of a pair of query and key is the one that `dropout.drop` draws for this pair in an
    array [rows, heads, length, length].

    Args:
      weights: float32 [rows, heads, blocks, block, 3 block].
      seeds: of rows, int32 [rows]; None for no dropout.
      rate: of dropout.
      length: of a row.

    Returns:
      float32, of the shape of `weights`.
    """
    if seeds is None or not dropout.threshold(rate):
        return weights
    heads = jnp.arange(weights.shape[1], dtype=jnp.int32)
    head_seeds = dropout.fold_in(seeds[:, None], heads)[..., None, None, None]
    return weights * tiles.keep_factors(head_seeds, *_places(length, weights.shape[3]), rate)


def _places(length: int, block: int) -> tuple[jax.Array, jax.Array]:
    """Returns the indices in the row of all queries, and of the keys of their spans.

    Returns:
      Indices of queries, int32 [blocks, block, 1], and of keys, int32 [blocks, 1, 3 block]. The
      indices of padding keys are below 0 or at least `length`.
    """
    starts = jnp.arange(0, length, block, dtype=jnp.int32)[:, None]
    queries = starts + jnp.arange(block, dtype=jnp.int32)
    keys = starts + jnp.arange(-block, 2 * block, dtype=jnp.int32)
    return queries[:, :, None], keys[:, None, :]


def _unpadded(axes: tuple[int, ...] | list[int]) -> list[tuple[int, int]]:
    """Returns the argument of `jnp.pad` that leaves these axes as they are."""
    return [(0, 0)] * len(axes)
