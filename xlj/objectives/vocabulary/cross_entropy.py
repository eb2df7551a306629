"""Cross-entropy over a large vocabulary, block by block, without all logits in memory."""

import jax
import jax.numpy as jnp

from xlj.models.lowering import product, product_over_rows, sum_over_rows, with_gradient
from xlj.objectives.vocabulary import kept_logits
from xlj.objectives.vocabulary.logits import (
    BLOCK,
    block_of,
    block_starts,
    check_factors,
    gradient,
    statistics,
)
from xlj.sharding import devices
from xlj.sharding.devices import REPLICATED, ROWS, TABLE


def cross_entropy(
    vectors: jax.Array,
    table: jax.Array,
    bias: jax.Array,
    labels: jax.Array,
    dtype: jnp.dtype,
    block: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Computes the negative log-likelihood of labels under softmax(vectors @ table.T + bias).

    Args:
      vectors: float32 [n, hidden].
      table: float32 [vocabulary, hidden].
      bias: float32 [vocabulary].
      labels: int32 [n].
      dtype: the dtype to which the factors of products are rounded; sums are float32.
      block: number of vocabulary entries per block. The logits of one block are in memory at a
        time, and the backward pass computes them again. None keeps all logits for the backward pass
        if they need little memory (`kept_logits.is_used`), and otherwise uses blocks of `BLOCK`
        entries.

    Returns:
      Two arrays, float32 [n] each: the losses; and 1 where the label has the largest logit, else 0,
      without gradient.
    """
    check_factors("cross_entropy", vectors, table, bias, labels=("int32 [n]", labels))
    if block is None and kept_logits.is_used(len(vectors), len(table), jnp.dtype(dtype)):
        return kept_logits.cross_entropy(vectors, table, bias, labels, dtype)
    return _cross_entropy(vectors, table, bias, labels, dtype, block or BLOCK)


ForwardCarry = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""What the forward pass accumulates over blocks, [n] each: the largest logit so far, its index in
the vocabulary, the sum of exponentials relative to it, and the logit of the label."""
BackwardCarry = tuple[jax.Array, jax.Array, jax.Array]
"""Gradients of vectors, table and bias."""
Saved = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]
"""Saved for the backward pass: vectors, table, bias and labels, and the log of the sum of
exponentials of each vector's logits."""


def _forward(
    vectors: jax.Array,
    table: jax.Array,
    bias: jax.Array,
    labels: jax.Array,
    dtype: jnp.dtype,
    block: int,
) -> tuple[tuple[jax.Array, jax.Array], Saved]:
    """Computes the results of `cross_entropy`, and the values that `_backward` needs."""

    def compute_on_device(
        vectors: jax.Array, table: jax.Array, bias: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        size, starts = block_starts(table, block)
        vectors = vectors.astype(dtype)

        def body(carry: ForwardCarry, start: jax.Array) -> tuple[ForwardCarry, None]:
            largest, best, total, label_logit = carry
            weights, biases, true_start = block_of(table, bias, start, size, dtype)
            # The four results have shape [n].
            block_largest, block_total, place, block_label_logit = statistics(
                vectors, weights, biases, labels - true_start, start - true_start
            )
            new_largest = jnp.maximum(largest, block_largest)
            best = jnp.where(block_largest > largest, true_start + place, best)
            total = total * jnp.exp(largest - new_largest)
            total = total + block_total * jnp.exp(block_largest - new_largest)
            return (new_largest, best, total, label_logit + block_label_logit), None

        count = len(vectors)
        zeros = jnp.zeros(count)
        initial = (jnp.full(count, -jnp.inf), jnp.zeros(count, jnp.int32), zeros, zeros)
        carry, _ = jax.lax.scan(body, initial, starts, unroll=devices.unroll_count(len(starts)))
        largest, best, total, label_logit = carry
        normaliser = largest + jnp.log(total)
        return normaliser - label_logit, (best == labels).astype(jnp.float32), normaliser

    per_device = devices.per_device(compute_on_device, (ROWS, TABLE, REPLICATED, ROWS), ROWS)
    losses, correct, normaliser = per_device(vectors, table, bias, labels)
    return (losses, correct), (vectors, table, bias, labels, normaliser)


def _backward(
    dtype: jnp.dtype, block: int, saved: Saved, gradients: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array | None, ...]:
    """Computes the gradients of vectors, table and bias; None is the gradient of the labels."""

    def compute_on_device(
        vectors: jax.Array,
        table: jax.Array,
        bias: jax.Array,
        labels: jax.Array,
        normaliser: jax.Array,
        grad_loss: jax.Array,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        size, starts = block_starts(table, block)
        vectors = vectors.astype(dtype)

        def body(carry: BackwardCarry, start: jax.Array) -> tuple[BackwardCarry, None]:
            grad_vectors, grad_table, grad_bias = carry
            weights, biases, true_start = block_of(table, bias, start, size, dtype)
            offsets = labels - true_start, start - true_start
            grad_logits = gradient(
                vectors, weights, biases, *offsets, normaliser, grad_loss
            )  # [n, size]
            more_grad_vectors = product(grad_logits, weights, dtype)  # [n, hidden]
            grad_weights = devices.reduce_sum(product_over_rows(grad_logits, vectors, dtype), 1)
            grad_table = jax.lax.dynamic_update_slice_in_dim(
                grad_table, grad_weights, true_start, 0
            )
            grad_bias = jax.lax.dynamic_update_slice_in_dim(
                grad_bias, sum_over_rows(grad_logits, dtype), true_start, 0
            )
            return (grad_vectors + more_grad_vectors, grad_table, grad_bias), None

        # The loop writes every entry of both gradients, so they need no initial values.
        grad_table, grad_bias = (jax.lax.empty(x.shape, jnp.float32) for x in (table, bias))
        initial = (jnp.zeros(vectors.shape), grad_table, grad_bias)
        # The last two blocks may overlap (`block_of`). The last block has gradient 0 at the common
        # entries. The loop runs in reverse, so the second-last block then overwrites these entries
        # with their gradient. So blocks never have to add to earlier results.
        unroll = devices.unroll_count(len(starts))
        carry, _ = jax.lax.scan(body, initial, starts, reverse=True, unroll=unroll)
        grad_vectors, grad_table, grad_bias = carry
        return grad_vectors, grad_table, devices.reduce_sum(grad_bias)

    inputs = (ROWS, TABLE, REPLICATED, ROWS, ROWS, ROWS)
    per_device = devices.per_device(compute_on_device, inputs, (ROWS, TABLE, REPLICATED))
    return *per_device(*saved, gradients[0]), None


_cross_entropy = with_gradient(_forward, _backward, static=(4, 5))
