"""Attention in a local window, with the scores of neighbouring blocks of tokens in memory.

Each block of queries is multiplied with the keys of three blocks: the block with the same number
and its two neighbours. So time and memory are linear in the length. The keys of the three blocks
are called the span of the block.
"""

import dataclasses

import jax
import jax.numpy as jnp

from xlj.models.attention import interface, reference, tiles
from xlj.models.attention.interface import Costs, Operands, Request
from xlj.models.lowering import swap_axes_copied

_SMALLEST = 64
"""The smallest number of queries in a block. Products of smaller blocks cost more time than they
save."""
_FEWEST = 4
"""The smallest number of blocks in a row for which blocks are faster than dense attention.

Measured with 4,096 tokens, 12 heads of size 64 and a window of 64, on two CPU cores. Each cell has
two times in milliseconds: forward / forward and backward. `square` computes all pairs of a row. No
GPU has measured blocks.

    length            192       256       384       512      1024      2048
    float32 square  89/197   122/285   147/336   199/505   344/993  518/1342
    float32 blocks 129/259   137/284   132/241   124/240   154/255   133/220
    bfloat16 square 60/121    86/154    92/218   115/266   228/523
    bfloat16 blocks 71/130    80/124    80/127    72/125    96/145
"""


class LocalBlocks(interface.Implementation):
    """Attention with the scores of neighbouring blocks of tokens in memory."""

    def why_not(self, request: Request) -> str | None:
        """Returns why blocks cannot compute a request; None if they can."""
        if request.window is None:
            return "no local window"
        return "takes no position bias" if request.has_bias else None

    def why_slower(self, request: Request) -> str | None:
        """Returns why `auto` prefers another implementation: rows of few blocks."""
        if request.window is None or _FEWEST * block_of(request.window) <= request.length:
            return None
        return f"rows shorter than {_FEWEST} blocks of {block_of(request.window)} tokens"

    def costs(self, request: Request) -> Costs:
        """Returns operations and bytes."""
        assert request.window is not None
        block = block_of(request.window)
        padded = interface.count_blocks(request.length, block) * block
        return interface.costs_of(request._replace(length=padded), (2, 4), 3 * block, weights=2)

    def attend(self, operands: Operands) -> jax.Array:
        """Computes attention in a window, without a bias (`Implementation.attend`)."""
        length, mask = operands.query.shape[1], operands.mask
        operands.check(length)
        assert mask.narrowing is not None and operands.bias is None, "refused by why_not"
        block = block_of(mask.narrowing)
        query, key, value = (
            swap_axes_copied(x, 1, 2) for x in (operands.query, operands.key, operands.value)
        )
        ids = mask.query_segment_ids, mask.key_segment_ids
        visible = find_visible(*ids, block, mask.narrowing)[:, None]
        inputs = reference.Inputs(query, key, value, None, None, visible, operands.seeds)
        options = reference.Options(Blocks(block, length), operands.rate, has_window=True)
        return swap_axes_copied(reference.attend_in_layout(inputs, options), 1, 2)


def block_of(window: int) -> int:
    """Returns the number of queries in a block.

    A block is at least as long as the window, so a query sees only keys of its span.

    Args:
      window: the largest distance in the row at which a query sees a key.
    """
    return max(_SMALLEST, window + -window % 16)


@dataclasses.dataclass(frozen=True)
class Blocks(reference.AllPairs):
    """The layout of the scores of spans: [rows, heads, blocks, block, 3 block]."""

    block: int
    length: int

    def split_queries(self, x: jax.Array) -> jax.Array:
        """Maps [rows, heads, length, size] -> [rows, heads, blocks, block, size]."""
        return split_blocks(x, self.block)

    def join_queries(self, x: jax.Array, length: int) -> jax.Array:
        """Maps [rows, heads, blocks, block, size] -> [rows, heads, length, size]."""
        return join_blocks(x, length)

    def gather_keys(self, x: jax.Array) -> jax.Array:
        """Maps [rows, heads, length, size] -> [rows, heads, blocks, 3 block, size]."""
        return gather_spans(x, self.block)

    def sum_keys(self, x: jax.Array, length: int) -> jax.Array:
        """Maps [rows, heads, blocks, 3 block, size] -> [rows, heads, length, size]."""
        return sum_spans(x, length)

    def drop(
        self, weights: jax.Array, seeds: jax.Array, rate: float, first: jax.Array | None
    ) -> jax.Array:
        """Applies dropout to weights float32 [rows, heads, blocks, block, 3 block]."""
        return tiles.drop(weights, seeds, *_positions(self.length, self.block), rate)


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
    queries, keys = _positions(length, block)
    inside = (keys >= 0) & (keys < length) & interface.is_within(queries, keys, window)
    span_ids = gather_spans(key_ids[..., None], block).swapaxes(2, 3)  # [rows, blocks, 1, 3 block]
    return (split_blocks(query_ids[..., None], block) == span_ids) & inside


def _positions(length: int, block: int) -> tuple[jax.Array, jax.Array]:
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
