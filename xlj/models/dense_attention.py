"""Attention as the papers write it, with the scores of all pairs in memory: the reference for the
kernels of `fused_attention`, and what CPUs run."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import Specified, check
from xlj.models import local_blocks
from xlj.models.dense import PRODUCT, checkpoint_name, products, swap_axes_copied
from xlj.models.dropout import drop
from xlj.models.fused_attention import tiles
from xlj.models.gradients import with_gradient


def dense_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_segment_ids: jax.Array,
    key_segment_ids: jax.Array,
    bias: jax.Array | None = None,
    gates: jax.Array | None = None,
    seeds: jax.Array | None = None,
    rate: float = 0.0,
    *,
    window: int | None = None,
) -> jax.Array:
    """Attention where a query sees the keys of its segment id.

    Args:
      query, key, value: [rows, length, heads, size], multiplied in their type.
      query_segment_ids, key_segment_ids: int32 [rows, length]. A query without a key gives zeros.
      bias: float32 [heads, length, length], added to the scores; or None.
      gates: float32 [rows, heads, length], the factor of the bias for each query, or None.
      seeds: int32 [rows], dropout's (`dropout.row_seeds`); None for no dropout.
      rate: of dropout.
      window: the largest distance of places in the row at which a query sees a key, on both sides
        and inclusive; None for any. Long rows without a bias are then computed in blocks
        (`local_blocks`), without the scores of all pairs.

    Returns:
      [rows, length, heads, size] of the query's type.
    """
    check_inputs(
        "dense_attention",
        query,
        key,
        value,
        query_segment_ids,
        key_segment_ids,
        bias=("float32 [heads, length, length]", bias),
        gates=gates,
        seeds=seeds,
        window=window,
    )
    length = query.shape[1]
    window = tiles.narrowing(window, length)
    block = local_blocks.block_of(length, window) if bias is None else None
    query, key, value = (swap_axes_copied(x, 1, 2) for x in (query, key, value))
    seen = _seen(query_segment_ids, key_segment_ids, window, block)
    inputs = _Inputs(query, key, value, bias, gates, seen, seeds)
    return swap_axes_copied(_attended(inputs, _Options(rate, window, block)), 1, 2)


class _Inputs(NamedTuple):
    """As those of `dense_attention`, of heads that lie apart: [rows, heads, length, size]."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    bias: jax.Array | None
    gates: jax.Array | None
    seen: jax.Array | None
    """Which keys a query sees: bool [rows, 1, length, length], or [rows, 1, blocks, block, 3 block]
    of rows in blocks."""
    seeds: jax.Array | None


class _Options(NamedTuple):
    """What the function is compiled for."""

    rate: float
    """Of dropout."""
    window: int | None
    """As in `dense_attention`, if it hides any key of the row."""
    block: int | None
    """Queries of a block; None for rows that are not cut."""


Saved = tuple[_Inputs, jax.Array, jax.Array]
"""What is kept for the gradient: inputs, the weights before dropout in their type, the output."""


def _seen(
    query_ids: jax.Array, key_ids: jax.Array, window: int | None, block: int | None
) -> jax.Array:
    """As `_Inputs.seen`, of ids int32 [rows, length]."""
    if window is not None and block is not None:
        return local_blocks.seen(query_ids, key_ids, block, window)[:, None]
    seen = (query_ids[:, :, None] == key_ids[:, None, :])[:, None]
    if window is None:
        return seen
    places = jnp.arange(query_ids.shape[1], dtype=jnp.int32)
    return seen & tiles.is_within(places[:, None], places, window)


def _forward(inputs: _Inputs, options: _Options) -> tuple[jax.Array, Saved]:
    query, key, value, bias, gates, seen, seeds = inputs
    assert seen is not None
    dtype = query.dtype
    length = query.shape[2]
    if options.block is not None:
        query = local_blocks.blocks(query, options.block)
        key, value = (local_blocks.spans(x, options.block) for x in (key, value))
    scores = products(query, key, (-1, -1)) * query.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + _gated(bias, gates, len(query))
    scores = jnp.where(seen, scores, -1e30)
    exps = jnp.exp(scores - scores.max(-1, keepdims=True))
    sums = exps.sum(-1, keepdims=True)
    weights = exps * jnp.where(seen.any(-1, keepdims=True), 1 / sums, 0)
    dropped = _dropped(weights, seeds, options, length).astype(dtype)
    mixed = products(dropped, value, (-1, -2)).astype(dtype)
    if options.block is not None:
        mixed = local_blocks.rows_of(mixed, length)
    mixed = checkpoint_name(mixed, PRODUCT)
    return mixed, (inputs._replace(seen=None), weights.astype(dtype), mixed)


def _backward(options: _Options, saved: Saved, gradient: jax.Array) -> tuple[_Inputs]:
    """The softmax's gradient from what it was mixed into: weights w, of the products with the
    values p, give w (p - sum(w p)), and that sum is the gradient's product with the output."""
    (query, key, value, bias, gates, _, seeds), weights, mixed = saved
    dtype, length, wide = query.dtype, query.shape[2], weights.astype(jnp.float32)
    if options.block is not None:
        query, mixed, gradient = (
            local_blocks.blocks(x, options.block) for x in (query, mixed, gradient)
        )
        key, value = (local_blocks.spans(x, options.block) for x in (key, value))
    # Else XLA would find that it has made the mask already, and keep it.
    seeds = jax.lax.optimization_barrier(seeds)
    dropped = _dropped(wide, seeds, options, length).astype(dtype)
    of_value = products(dropped, gradient, (-2, -2))
    of_weights = _dropped(products(gradient, value, (-1, -1)), seeds, options, length)
    along = (gradient.astype(jnp.float32) * mixed).sum(-1, keepdims=True)
    of_scores = wide * (of_weights - along)
    if options.window is not None:  # also where a value outside and the gradient exceed float32
        of_scores = jnp.where(wide > 0, of_scores, 0)
    of_bias = of_gates = None
    if bias is not None:
        through_gates = jax.vjp(partial(_gated, rows=len(query)), bias, gates)[1]
        of_bias, of_gates = through_gates(of_scores)
    of_scores = (of_scores * query.shape[-1] ** -0.5).astype(dtype)
    of_query = products(of_scores, key, (-1, -2))
    of_key = products(of_scores, query, (-2, -2))
    if options.block is not None:
        of_query = local_blocks.rows_of(of_query, length)
        of_key, of_value = (local_blocks.sum_of_spans(x, length) for x in (of_key, of_value))
    of_query, of_key, of_value = (x.astype(dtype) for x in (of_query, of_key, of_value))
    return (_Inputs(of_query, of_key, of_value, of_bias, of_gates, None, None),)


_attended = with_gradient(_forward, _backward, static=(1,))


def _dropped(
    weights: jax.Array, seeds: jax.Array | None, options: _Options, length: int
) -> jax.Array:
    """Dropout of float32 [rows, heads, length, length], or of those of rows in blocks."""
    if options.block is None:
        return drop(weights, seeds, options.rate)
    return local_blocks.drop(weights, seeds, options.rate, length)


def _gated(bias: jax.Array, gates: jax.Array | None, rows: int) -> jax.Array:
    """What is added to the scores, float32 [rows, heads, length, length]."""
    factors = jnp.ones((rows, 1, 1), bias.dtype) if gates is None else gates
    return bias * factors[..., None]


def check_inputs(
    function: str,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_segment_ids: jax.Array,
    key_segment_ids: jax.Array,
    *,
    bias: Specified,
    gates: jax.Array | None,
    seeds: jax.Array | None,
    window: int | None,
) -> None:
    """Checks what a function of attention is given, as `xlj.contracts.arrays.check`; `bias` says
    what that is to be.

    Raises:
      ValueError: the window is negative.
    """
    if window is not None and window < 0:
        raise ValueError(f"window={window} of {function}: expected None, 0 or more places.")
    heads = "[rows, length, heads, size]"
    check(
        function,
        query=(f"float {heads}", query),
        key=(f"{query.dtype} {heads}", key),
        value=(f"{query.dtype} {heads}", value),
        query_segment_ids=("int32 [rows, length]", query_segment_ids),
        key_segment_ids=("int32 [rows, length]", key_segment_ids),
        bias=bias,
        gates=("float32 [rows, heads, length]", gates),
        seeds=("int32 [rows]", seeds),
    )
