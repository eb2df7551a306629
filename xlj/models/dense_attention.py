"""Attention that writes its scores to memory.

These are the scores of all token pairs of a row. With a window and without a position bias, long
rows are divided into blocks, and only tokens of neighbouring blocks have scores (`local_blocks`).
Dense attention is the default on CPUs, and the reference for `fused_attention`.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import Specified, check
from xlj.models import local_blocks
from xlj.models.counting import is_counting
from xlj.models.dense import PRODUCT, checkpoint_name
from xlj.models.dropout import drop
from xlj.models.fused_attention import tiles
from xlj.models.gradients import with_gradient
from xlj.models.lowering import products, swap_axes_copied


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
    """Computes attention in which a query sees the keys with the same segment id.

    The output of a query that sees no key is zero.

    Args:
      query, key, value: float [rows, length, heads, size], all of one dtype, which is also the
        dtype of the products' factors.
      query_segment_ids, key_segment_ids: int32 [rows, length].
      bias: float32 [heads, length, length], added to the scores; None for no bias.
      gates: float32 [rows, heads, length], the factor of the bias for each query; None for 1.
      seeds: seeds of dropout, int32 [rows] (`dropout.row_seeds`); None for no dropout.
      rate: of dropout.
      window: the largest distance in the row at which a query sees a key, on both sides and
        inclusive; None for no window. With a window, long rows without a bias are computed in
        blocks (`local_blocks`), without the scores of all pairs.

    Returns:
      [rows, length, heads, size], of the dtype of `query`.
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
    if is_counting() and window is not None:  # as many keys as a window has
        seen = slice(2 * window + 1)
        key, value, key_segment_ids = (x[:, seen] for x in (key, value, key_segment_ids))
        window, bias = None, None if bias is None else bias[..., seen]
    block = local_blocks.block_of(length, window) if bias is None else None
    query, key, value = (swap_axes_copied(x, 1, 2) for x in (query, key, value))
    visible = _visible(query_segment_ids, key_segment_ids, window, block)
    inputs = _Inputs(query, key, value, bias, gates, visible, seeds)
    return swap_axes_copied(_attend(inputs, _Options(rate, window, block)), 1, 2)


class _Inputs(NamedTuple):
    """The arguments of `dense_attention`; query, key and value are [rows, heads, length, size]."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    bias: jax.Array | None
    gates: jax.Array | None
    visible: jax.Array | None
    """Which keys a query sees: bool [rows, 1, length, length], or [rows, 1, blocks, block, 3 block]
    if rows are divided into blocks. None in the saved inputs: the backward pass does not need
    it."""
    seeds: jax.Array | None


class _Options(NamedTuple):
    """Static arguments of `_attend`."""

    rate: float
    """Rate of dropout."""
    window: int | None
    """The largest distance at which a query sees a key; None if all keys of a row are within it."""
    block: int | None
    """Number of queries per block; None if rows are not divided into blocks."""


Saved = tuple[_Inputs, jax.Array, jax.Array]
"""Saved for the backward pass: the inputs, the attention weights before dropout in the dtype of the
query, and the output."""


def _visible(
    query_ids: jax.Array, key_ids: jax.Array, window: int | None, block: int | None
) -> jax.Array:
    """Returns `_Inputs.visible` for ids int32 [rows, length]."""
    if window is not None and block is not None:
        return local_blocks.find_visible(query_ids, key_ids, block, window)[:, None]
    visible = (query_ids[:, :, None] == key_ids[:, None, :])[:, None]
    if window is None:
        return visible
    places = jnp.arange(query_ids.shape[1], dtype=jnp.int32)
    return visible & tiles.is_within(places[:, None], places, window)


def _forward(inputs: _Inputs, options: _Options) -> tuple[jax.Array, Saved]:
    """Computes the output, [rows, heads, length, size], and the values that `_backward` needs."""
    query, key, value, bias, gates, visible, seeds = inputs
    assert visible is not None
    dtype = query.dtype
    length = query.shape[2]
    if options.block is not None:
        query = local_blocks.split_blocks(query, options.block)
        key, value = (local_blocks.gather_spans(x, options.block) for x in (key, value))
    # Scores and weights: [rows, heads, length, length], or [rows, heads, blocks, block, 3 block].
    scores = products(query, key, (-1, -1)) * query.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + _gated_bias(bias, gates, len(query))
    scores = jnp.where(visible, scores, -1e30)
    exps = jnp.exp(scores - scores.max(-1, keepdims=True))
    sums = exps.sum(-1, keepdims=True)
    weights = exps * jnp.where(visible.any(-1, keepdims=True), 1 / sums, 0)
    dropped = _drop_weights(weights, seeds, options, length).astype(dtype)
    output = products(dropped, value, (-1, -2)).astype(dtype)
    if options.block is not None:
        output = local_blocks.join_blocks(output, length)
    output = checkpoint_name(output, PRODUCT)  # [rows, heads, length, size]
    return output, (inputs._replace(visible=None), weights.astype(dtype), output)


def _backward(options: _Options, saved: Saved, gradient: jax.Array) -> tuple[_Inputs]:
    """Computes the gradients of the inputs.

    With attention weights w and their gradients p, the gradient of the scores is w (p - sum(w p)).
    The sum over keys equals the inner product of the output and the gradient of the output.
    """
    (query, key, value, bias, gates, _, seeds), weights, output = saved
    dtype, length, wide = query.dtype, query.shape[2], weights.astype(jnp.float32)
    if options.block is not None:
        query, output, gradient = (
            local_blocks.split_blocks(x, options.block) for x in (query, output, gradient)
        )
        key, value = (local_blocks.gather_spans(x, options.block) for x in (key, value))
    # The barrier makes XLA compute the dropout mask again instead of saving it.
    seeds = jax.lax.optimization_barrier(seeds)
    dropped = _drop_weights(wide, seeds, options, length).astype(dtype)
    grad_value = products(dropped, gradient, (-2, -2))  # [rows, heads, length, size]
    grad_weights = _drop_weights(products(gradient, value, (-1, -1)), seeds, options, length)
    along = (gradient.astype(jnp.float32) * output).sum(-1, keepdims=True)  # one per query
    grad_scores = wide * (grad_weights - along)  # the shape of weights
    if options.window is not None:
        # Outside the window, the gradient is 0 even if `grad_weights` overflows there.
        grad_scores = jnp.where(wide > 0, grad_scores, 0)
    grad_bias = grad_gates = None
    if bias is not None:
        through_gates = jax.vjp(partial(_gated_bias, rows=len(query)), bias, gates)[1]
        grad_bias, grad_gates = through_gates(grad_scores)
    grad_scores = (grad_scores * query.shape[-1] ** -0.5).astype(dtype)
    grad_query = products(grad_scores, key, (-1, -2))
    grad_key = products(grad_scores, query, (-2, -2))
    if options.block is not None:
        grad_query = local_blocks.join_blocks(grad_query, length)
        grad_key, grad_value = (local_blocks.sum_spans(x, length) for x in (grad_key, grad_value))
    grad_query, grad_key, grad_value = (x.astype(dtype) for x in (grad_query, grad_key, grad_value))
    return (_Inputs(grad_query, grad_key, grad_value, grad_bias, grad_gates, None, None),)


_attend = with_gradient(_forward, _backward, static=(1,))


def _drop_weights(
    weights: jax.Array, seeds: jax.Array | None, options: _Options, length: int
) -> jax.Array:
    """Applies dropout to attention weights.

    Args:
      weights: float32 [rows, heads, length, length], or [rows, heads, blocks, block, 3 block].
    """
    if options.block is None:
        return drop(weights, seeds, options.rate)
    return local_blocks.drop(weights, seeds, options.rate, length)


def _gated_bias(bias: jax.Array, gates: jax.Array | None, rows: int) -> jax.Array:
    """Returns the bias times the gates, float32 [rows, heads, length, length].

    Without gates, the first axis still has the size of the batch, so that the gradient of the bias
    is the sum over rows.
    """
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
    """Checks the arguments of an attention function with `xlj.contracts.arrays.check`.

    Args:
      function: its name, for error messages.
      bias: (specification, array or None), since the shape of the bias depends on the function.

    Raises:
      AssertionError: if an array has another shape or dtype than the function needs.
      ValueError: if the window is negative.
    """
    if window is not None and window < 0:
        raise ValueError(f"window={window} of {function}: expected None or a non-negative integer.")
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
