"""Attention as the papers write it, with the scores of all pairs in memory: the reference for the
kernels of `fused_attention`, and what CPUs run."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import Specified, check
from xlj.models.dense import PRODUCT, checkpoint_name, products, swap_axes_copied
from xlj.models.dropout import drop
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
) -> jax.Array:
    """Attention where a query sees the keys of its segment id.

    Args:
      query, key, value: [rows, length, heads, size], multiplied in their type.
      query_segment_ids, key_segment_ids: int32 [rows, length]. A query without a key gives zeros.
      bias: float32 [heads, length, length], added to the scores; or None.
      gates: float32 [rows, heads, length], the factor of the bias for each query, or None.
      seeds: int32 [rows], dropout's (`dropout.row_seeds`); None for no dropout.
      rate: of dropout.

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
    )
    query, key, value = (swap_axes_copied(x, 1, 2) for x in (query, key, value))
    seen = (query_segment_ids[:, :, None] == key_segment_ids[:, None, :])[:, None]
    return swap_axes_copied(
        _attended(_Inputs(query, key, value, bias, gates, seen, seeds), rate), 1, 2
    )


class _Inputs(NamedTuple):
    """As those of `dense_attention`, of heads that lie apart: [rows, heads, length, size]."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    bias: jax.Array | None
    gates: jax.Array | None
    seen: jax.Array | None
    """Which keys a query sees: bool [rows, 1, length, length]."""
    seeds: jax.Array | None


Saved = tuple[_Inputs, jax.Array, jax.Array]
"""What is kept for the gradient: inputs, the weights before dropout in their type, the output."""


def _forward(inputs: _Inputs, rate: float) -> tuple[jax.Array, Saved]:
    query, key, value, bias, gates, seen, seeds = inputs
    assert seen is not None
    dtype = query.dtype
    scores = products(query, key, (-1, -1)) * query.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + _gated(bias, gates, len(query))
    scores = jnp.where(seen, scores, -1e30)
    exps = jnp.exp(scores - scores.max(-1, keepdims=True))
    sums = exps.sum(-1, keepdims=True)
    weights = exps * jnp.where(seen.any(-1, keepdims=True), 1 / sums, 0)
    dropped = drop(weights, seeds, rate).astype(dtype)
    mixed = checkpoint_name(products(dropped, value, (-1, -2)).astype(dtype), PRODUCT)
    return mixed, (inputs._replace(seen=None), weights.astype(dtype), mixed)


def _backward(rate: float, saved: Saved, gradient: jax.Array) -> tuple[_Inputs]:
    """The softmax's gradient from what it was mixed into: weights w, of the products with the
    values p, give w (p - sum(w p)), and that sum is the gradient's product with the output."""
    (query, key, value, bias, gates, _, seeds), weights, mixed = saved
    dtype, wide = query.dtype, weights.astype(jnp.float32)
    # Else XLA would find that it has made the mask already, and keep it.
    seeds = jax.lax.optimization_barrier(seeds)
    of_value = products(drop(wide, seeds, rate).astype(dtype), gradient, (-2, -2))
    of_weights = drop(products(gradient, value, (-1, -1)), seeds, rate)
    along = (gradient.astype(jnp.float32) * mixed).sum(-1, keepdims=True)
    of_scores = wide * (of_weights - along)
    of_bias = of_gates = None
    if bias is not None:
        through_gates = jax.vjp(partial(_gated, rows=len(query)), bias, gates)[1]
        of_bias, of_gates = through_gates(of_scores)
    of_scores = (of_scores * query.shape[-1] ** -0.5).astype(dtype)
    of_query = products(of_scores, key, (-1, -2))
    of_key = products(of_scores, query, (-2, -2))
    of_query, of_key, of_value = (x.astype(dtype) for x in (of_query, of_key, of_value))
    return (_Inputs(of_query, of_key, of_value, of_bias, of_gates, None, None),)


_attended = with_gradient(_forward, _backward, static=(1,))


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
) -> None:
    """Checks what a function of attention is given, as `xlj.contracts.arrays.check`; `bias` says
    what that is to be."""
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
