"""Attention that writes its scores to memory: the reference, and the default on CPUs.

The scores are those of all token pairs of a row. Other layouts of the scores share the computation
and its gradient (`blocks`, `chunks`).
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.models import dropout
from xlj.models.attention import interface
from xlj.models.attention.interface import Costs, Mask, Operands, Request
from xlj.models.dense import PRODUCT, checkpoint_name
from xlj.models.lowering import is_counting, products, swap_axes_copied, with_gradient


class Dense(interface.Implementation):
    """Attention with the scores of all token pairs in memory. It computes every request."""

    def costs(self, request: Request) -> Costs:
        """Returns operations and bytes. Weights, and gradients of weights, are written and read."""
        return interface.costs_of(request, (2, 4), request.length, weights=2)

    def attend(self, operands: Operands) -> jax.Array:
        """Computes attention (`Implementation.attend`)."""
        operands.check(operands.query.shape[1])
        if is_counting():
            operands = _with_keys_of_window(operands)
        mask, bias = operands.mask, operands.bias
        query, key, value = (
            swap_axes_copied(x, 1, 2) for x in (operands.query, operands.key, operands.value)
        )
        visible = mask.of_queries(mask.query_segment_ids)[:, None]
        bias = None if bias is None else bias[:, 0]
        inputs = Inputs(query, key, value, bias, operands.gates, visible, operands.seeds)
        options = Options(AllPairs(), operands.rate, mask.narrowing is not None)
        return swap_axes_copied(attend_in_layout(inputs, options), 1, 2)


def _with_keys_of_window(operands: Operands) -> Operands:
    """Returns operands with as many keys as a window has, for programs that count operations."""
    mask, bias = operands.mask, operands.bias
    if mask.narrowing is None:
        return operands
    seen = slice(2 * mask.narrowing + 1)
    return dataclasses.replace(
        operands,
        key=operands.key[:, seen],
        value=operands.value[:, seen],
        mask=Mask(mask.query_segment_ids, mask.key_segment_ids[:, seen]),
        bias=None if bias is None else bias[..., seen],
    )


@dataclasses.dataclass(frozen=True)
class AllPairs:
    """The layout of the scores of all pairs: [rows, heads, queries, length].

    A subclass has another layout, whose queries and keys may be copies of parts of the row.
    """

    def split_queries(self, x: jax.Array) -> jax.Array:
        """Maps queries [rows, heads, queries, size] to the layout of the scores' rows."""
        return x

    def join_queries(self, x: jax.Array, length: int) -> jax.Array:
        """Returns the inverse of `split_queries`; `length` is the number of queries."""
        return x

    def gather_keys(self, x: jax.Array) -> jax.Array:
        """Maps keys [rows, heads, length, size] to the layout of the scores' columns."""
        return x

    def sum_keys(self, x: jax.Array, length: int) -> jax.Array:
        """Returns the transpose of `gather_keys`: sums over the copies of each key."""
        return x

    def drop(
        self, weights: jax.Array, seeds: jax.Array, rate: float, first: jax.Array | None
    ) -> jax.Array:
        """Applies dropout to attention weights, with the masks of `dropout.drop` for all pairs.

        Args:
          weights: float32, in this layout.
          seeds: of rows, int32 [rows].
          first: `Inputs.first`.
        """
        return dropout.drop(weights, seeds, rate)


class Inputs(NamedTuple):
    """The arguments of `attend_in_layout`."""

    query: jax.Array
    """[rows, heads, queries, size]."""
    key: jax.Array
    """[rows, heads, length, size], as is the value."""
    value: jax.Array
    bias: jax.Array | None
    """[heads, queries, length]."""
    gates: jax.Array | None
    """[rows, heads, queries]."""
    visible: jax.Array | None
    """Which keys a query sees: bool [rows, 1, ...] in the layout of the scores. None in the saved
    inputs: the backward pass does not need it."""
    seeds: jax.Array | None
    first: jax.Array | None = None
    """The index in the row of the first query, int32 []; None if the queries are the whole row."""


class Options(NamedTuple):
    """Static arguments of `attend_in_layout`."""

    layout: AllPairs
    rate: float
    """Rate of dropout."""
    has_window: bool
    """Whether a window hides some keys of a row."""


Saved = tuple[Inputs, jax.Array, jax.Array]
"""Saved for the backward pass: the inputs, the attention weights before dropout in the dtype of the
query, and the output."""


def _forward(inputs: Inputs, options: Options) -> tuple[jax.Array, Saved]:
    """Computes the output, [rows, heads, queries, size], and the values that `_backward` needs."""
    query, key, value, bias, gates, visible, seeds, first = inputs
    assert visible is not None
    dtype, layout, count = query.dtype, options.layout, query.shape[2]
    query = layout.split_queries(query)
    key, value = (layout.gather_keys(x) for x in (key, value))
    scores = products(query, key, (-1, -1)) * query.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + _gated_bias(bias, gates, len(query))
    scores = jnp.where(visible, scores, -1e30)
    exps = jnp.exp(scores - scores.max(-1, keepdims=True))
    sums = exps.sum(-1, keepdims=True)
    weights = exps * jnp.where(visible.any(-1, keepdims=True), 1 / sums, 0)
    dropped = _drop(weights, seeds, first, options).astype(dtype)
    output = products(dropped, value, (-1, -2)).astype(dtype)
    output = checkpoint_name(layout.join_queries(output, count), PRODUCT)
    return output, (inputs._replace(visible=None), weights.astype(dtype), output)


def _backward(options: Options, saved: Saved, gradient: jax.Array) -> tuple[Inputs]:
    """Computes the gradients of the inputs.

    With attention weights w and their gradients p, the gradient of the scores is w (p - sum(w p)).
    The sum over keys equals the inner product of the output and the gradient of the output.
    """
    (query, key, value, bias, gates, _, seeds, first), weights, output = saved
    dtype, layout, wide = query.dtype, options.layout, weights.astype(jnp.float32)
    count, length = query.shape[2], key.shape[2]
    query, output, gradient = (layout.split_queries(x) for x in (query, output, gradient))
    key, value = (layout.gather_keys(x) for x in (key, value))
    # The barrier makes XLA compute the dropout mask again instead of saving it.
    seeds = jax.lax.optimization_barrier(seeds)
    dropped = _drop(wide, seeds, first, options).astype(dtype)
    grad_value = products(dropped, gradient, (-2, -2))  # [rows, heads, length, size]
    grad_weights = _drop(products(gradient, value, (-1, -1)), seeds, first, options)
    along = (gradient.astype(jnp.float32) * output).sum(-1, keepdims=True)  # one per query
    grad_scores = wide * (grad_weights - along)  # the shape of weights
    if options.has_window:
        # Outside the window, the gradient is 0 even if `grad_weights` overflows there.
        grad_scores = jnp.where(wide > 0, grad_scores, 0)
    grad_bias = grad_gates = None
    if bias is not None:
        through_gates = jax.vjp(partial(_gated_bias, rows=len(query)), bias, gates)[1]
        grad_bias, grad_gates = through_gates(grad_scores)
    grad_scores = (grad_scores * query.shape[-1] ** -0.5).astype(dtype)
    grad_query = layout.join_queries(products(grad_scores, key, (-1, -2)), count)
    grad_key = layout.sum_keys(products(grad_scores, query, (-2, -2)), length)
    grad_value = layout.sum_keys(grad_value, length)
    grad_query, grad_key, grad_value = (x.astype(dtype) for x in (grad_query, grad_key, grad_value))
    return (Inputs(grad_query, grad_key, grad_value, grad_bias, grad_gates, None, None),)


attend_in_layout = with_gradient(_forward, _backward, static=(1,))
"""Computes attention: (`Inputs`, `Options`) -> [rows, heads, queries, size]."""


def _drop(
    weights: jax.Array, seeds: jax.Array | None, first: jax.Array | None, options: Options
) -> jax.Array:
    """Applies dropout to attention weights, float32 in the layout of the scores."""
    if seeds is None or not dropout.threshold(options.rate):
        return weights
    return options.layout.drop(weights, seeds, options.rate, first)


def _gated_bias(bias: jax.Array, gates: jax.Array | None, rows: int) -> jax.Array:
    """Returns the bias times the gates, float32 [rows, heads, queries, length].

    Without gates, the first axis still has the size of the batch, so that the gradient of the bias
    is the sum over rows.
    """
    factors = jnp.ones((rows, 1, 1), bias.dtype) if gates is None else gates
    return bias * factors[..., None]
