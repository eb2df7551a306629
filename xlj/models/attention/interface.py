"""The interface of attention: what a query sees, and what an implementation computes and states."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.sharding import devices


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mask:
    """Which keys a query sees: those with the same segment id, within the window.

    A segment is an example of a packed row, or a sentence of an example. The ids of a token as a
    query and as a key may differ, so a query can see another segment, and a key can be hidden.
    """

    query_segment_ids: jax.Array
    """int32 [rows, length]."""
    key_segment_ids: jax.Array
    """int32 [rows, length]."""
    window: int | None = dataclasses.field(default=None, metadata={"static": True})
    """The largest distance in the row at which a query sees a key, on both sides and inclusive;
    None for no window."""

    @property
    def narrowing(self) -> int | None:
        """The window, or None if all tokens of a row are within it."""
        return narrowing(self.window, self.key_segment_ids.shape[1])

    def of_queries(self, ids: jax.Array, first: jax.Array | int = 0) -> jax.Array:
        """Returns which keys of the row each of some queries sees.

        Args:
          ids: segment ids of the queries, int32 [rows, queries].
          first: the index in the row of the first query.

        Returns:
          bool [rows, queries, length].
        """
        visible = ids[:, :, None] == self.key_segment_ids[:, None, :]
        if self.narrowing is None:
            return visible
        queries = first + jnp.arange(ids.shape[1], dtype=jnp.int32)
        keys = jnp.arange(self.key_segment_ids.shape[1], dtype=jnp.int32)
        return visible & is_within(queries[:, None], keys, self.narrowing)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Operands:
    """What attention is computed from."""

    query: jax.Array
    """float [rows, length, heads, size]. Its dtype is that of key, value and output, and of the
    products' factors."""
    key: jax.Array
    """float [rows, length, heads, size]."""
    value: jax.Array
    """float [rows, length, heads, size]."""
    mask: Mask
    bias: jax.Array | None = None
    """The tiles of `positions.bias_tiles` with `Implementation.bias_block` queries, for rows
    that are padded to n whole blocks: float32 [heads, 2 n - 1, block, block]. It is added to the
    scores. None for no bias."""
    gates: jax.Array | None = None
    """The factor of the bias for each query, float32 [rows, heads, length]; None for 1."""
    seeds: jax.Array | None = None
    """Seeds of the dropout of attention weights, int32 [rows] (`dropout.row_seeds`); None for no
    dropout."""
    rate: float = dataclasses.field(default=0.0, metadata={"static": True})
    """Of dropout."""

    def check(self, block: int) -> None:
        """Checks shapes and dtypes with `xlj.contracts.arrays.check`.

        Args:
          block: number of queries in a tile of the bias.

        Raises:
          AssertionError: if an array has another shape or dtype.
          ValueError: if the window is negative.
        """
        window, heads, length = self.mask.window, "[rows, length, heads, size]", "[rows, length]"
        if window is not None and window < 0:
            raise ValueError(f"window={window}: expected None or a non-negative integer")
        check("attend", query=(f"float {heads}", self.query))
        tiles = 2 * count_blocks(self.query.shape[1], block) - 1
        check(
            "attend",
            query=(f"float {heads}", self.query),
            key=(f"{self.query.dtype} {heads}", self.key),
            value=(f"{self.query.dtype} {heads}", self.value),
            query_segment_ids=(f"int32 {length}", self.mask.query_segment_ids),
            key_segment_ids=(f"int32 {length}", self.mask.key_segment_ids),
            bias=(f"float32 [heads, {tiles}, {block}, {block}]", self.bias),
            gates=("float32 [rows, heads, length]", self.gates),
            seeds=("int32 [rows]", self.seeds),
        )


class Request(NamedTuple):
    """What the attention of a kind of layers needs, and on which device. It contains no arrays."""

    platform: str
    """"cpu", "gpu" or "tpu"."""
    dtype: str
    """Of query, key and value."""
    length: int
    """Number of tokens in a row."""
    heads: int
    size: int
    """Number of dimensions of a head."""
    window: int | None = None
    """`Mask.narrowing`."""
    has_bias: bool = False
    """Whether there is a position bias."""
    has_dropout: bool = False
    """Whether attention weights have dropout in training."""


class Cost(NamedTuple):
    """The work of one pass of attention for one row: the forward or the backward pass."""

    operations: float
    """Floating-point operations in matrix products; a multiply-add counts as 2."""
    bytes: float
    """Bytes that are read from and written to memory, if each array is accessed once."""


class Costs(NamedTuple):
    """The work of attention in one layer for one row."""

    forward: Cost
    backward: Cost


class Implementation:
    """A way to compute attention. A subclass has `attend`, and changes what differs from here."""

    def why_not(self, request: Request) -> str | None:
        """Returns why the implementation cannot compute a request; None if it can."""
        return None

    def why_slower(self, request: Request) -> str | None:
        """Returns why `model.attention=auto` prefers a later implementation in the list; None if it
        prefers this one."""
        return None

    def bias_block(self, request: Request) -> int:
        """Returns the number of queries, and of keys, in a tile of the position bias.

        By default, the bias has one tile, or the implementation takes no bias.
        """
        return request.length

    def costs(self, request: Request) -> Costs | None:
        """Returns operations and bytes; None if they follow from the compiled program only."""
        return None

    def attend(self, operands: Operands) -> jax.Array:
        """Computes attention. The output of a query that sees no key is zero.

        Returns:
          float [rows, length, heads, size], of the dtype of the query.
        """
        raise NotImplementedError


def request_of(model: Model, is_local: bool, length: int) -> Request:
    """Returns the request of a kind of layers, for the devices of the traced program.

    Args:
      is_local: whether the layers have a local window, of `model.local_attention // 2` tokens to
        each side.
      length: of a row, in tokens.
    """
    return Request(
        platform=devices.platform(),
        dtype=model.dtype,
        length=length,
        heads=model.heads,
        size=model.hidden // model.heads,
        window=narrowing(window_of(model, is_local), length),
        has_bias=model.position_bias != "none",
        has_dropout=model.attention_dropout > 0,
    )


def window_of(model: Model, is_local: bool) -> int | None:
    """Returns the window of a kind of layers (`Mask.window`)."""
    return model.local_attention // 2 if is_local else None


def narrowing(window: int | None, length: int) -> int | None:
    """Returns the window, or None if all tokens of a row of this length are within it."""
    return None if window is None or window >= length - 1 else window


def is_within(queries: jax.Array, keys: jax.Array, window: int) -> jax.Array:
    """Returns whether indices in a row are at most `window` apart.

    Args:
      queries, keys: indices in the row, int32 [...], of shapes that broadcast.

    Returns:
      bool of the broadcast shape.
    """
    distance = queries - keys
    return (distance <= window) & (distance >= -window)


def count_blocks(length: int, block: int) -> int:
    """Returns the number of blocks of a row, of which the last one may be padded."""
    return -(-length // block)


def costs_of(request: Request, products: tuple[int, int], keys: int, weights: int = 0) -> Costs:
    """Returns the work of attention that computes the scores of `keys` keys for each query.

    Args:
      products: the number of matrix products in the forward and in the backward pass.
      keys: number of keys that are multiplied with a query.
      weights: how often attention weights are written to memory or read from it in a pass.
    """
    itemsize = jnp.dtype(request.dtype).itemsize
    vectors = request.length * request.heads * request.size
    pairs = request.length * request.heads * keys
    # Forward: query, key, value and output. Backward: these, their gradients.
    forward, backward = (
        Cost(2.0 * count * pairs * request.size, itemsize * (arrays * vectors + weights * pairs))
        for count, arrays in zip(products, (4, 8), strict=True)
    )
    return Costs(forward, backward)
