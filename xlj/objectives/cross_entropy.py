"""Cross-entropy over a large vocabulary: of many vectors block by block, without all the logits."""

import jax
import jax.numpy as jnp

from xlj.models.dense import product, product_over_rows, sum_over_rows
from xlj.models.gradients import with_gradient
from xlj.objectives import kept_logits
from xlj.objectives.logits import (
    BLOCK,
    block_of,
    block_starts,
    check_factors,
    gradient,
    statistics,
)
from xlj.sharding import devices
from xlj.sharding.rules import REPLICATED, ROWS, TABLE


def cross_entropy(
    vectors: jax.Array,
    table: jax.Array,
    bias: jax.Array,
    labels: jax.Array,
    dtype: jnp.dtype,
    block: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Negative log-likelihood of labels under softmax(vectors @ table.T + bias).

    Args:
      vectors: float32 [n, hidden].
      table: float32 [vocabulary, hidden].
      bias: float32 [vocabulary].
      labels: int32 [n].
      dtype: what the products are computed in; sums are float32.
      block: vocabulary entries at a time; the backward pass computes each block's logits again.
        By itself `BLOCK`, or where there are few vectors (`kept_logits.MOST`) all, whose logits are
        kept.

    Returns:
      losses float32 [n], and whether the label has the largest logit, float32 [n] (no gradient).
    """
    check_factors("cross_entropy", vectors, table, bias, labels=("int32 [n]", labels))
    if block is None and kept_logits.is_used(len(vectors), len(table), jnp.dtype(dtype)):
        return kept_logits.cross_entropy(vectors, table, bias, labels, dtype)
    return _cross_entropy(vectors, table, bias, labels, dtype, block or BLOCK)


Three = tuple[jax.Array, jax.Array, jax.Array]
Four = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
Saved = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]
"""What is kept for the backward pass: the arguments, and the logarithm of each vector's sum."""


def _forward(
    vectors: jax.Array,
    table: jax.Array,
    bias: jax.Array,
    labels: jax.Array,
    dtype: jnp.dtype,
    block: int,
) -> tuple[tuple[jax.Array, jax.Array], Saved]:
    def of_rows(
        vectors: jax.Array, table: jax.Array, bias: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        size, starts = block_starts(table, block)
        vectors = vectors.astype(dtype)

        def body(carry: Four, start: jax.Array) -> tuple[Four, None]:
            largest, best, total, of_label = carry
            weights, biases, true_start = block_of(table, bias, start, size, dtype)
            here, more, place, picked = statistics(
                vectors, weights, biases, labels - true_start, start - true_start
            )
            new_largest = jnp.maximum(largest, here)
            best = jnp.where(here > largest, true_start + place, best)
            total = total * jnp.exp(largest - new_largest) + more * jnp.exp(here - new_largest)
            of_label = of_label + picked
            return (new_largest, best, total, of_label), None

        count = len(vectors)
        zeros = jnp.zeros(count)
        initial = (jnp.full(count, -jnp.inf), jnp.zeros(count, jnp.int32), zeros, zeros)
        ended, _ = jax.lax.scan(body, initial, starts, unroll=devices.unrolled(len(starts)))
        largest, best, total, of_label = ended
        normaliser = largest + jnp.log(total)
        return normaliser - of_label, (best == labels).astype(jnp.float32), normaliser

    per_device = devices.per_device(of_rows, (ROWS, TABLE, REPLICATED, ROWS), ROWS)
    losses, correct, normaliser = per_device(vectors, table, bias, labels)
    return (losses, correct), (vectors, table, bias, labels, normaliser)


def _backward(
    dtype: jnp.dtype, block: int, saved: Saved, gradients: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array | None, ...]:
    def of_rows(
        vectors: jax.Array,
        table: jax.Array,
        bias: jax.Array,
        labels: jax.Array,
        normaliser: jax.Array,
        of_loss: jax.Array,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        size, starts = block_starts(table, block)
        vectors = vectors.astype(dtype)

        def body(carry: Three, start: jax.Array) -> tuple[Three, None]:
            of_vectors, of_table, of_bias = carry
            weights, biases, true_start = block_of(table, bias, start, size, dtype)
            places = labels - true_start, start - true_start
            of_logits = gradient(vectors, weights, biases, *places, normaliser, of_loss)
            more_of_vectors = product(of_logits, weights, dtype)
            of_weights = devices.summed(product_over_rows(of_logits, vectors, dtype), 1)
            of_table = jax.lax.dynamic_update_slice_in_dim(of_table, of_weights, true_start, 0)
            of_bias = jax.lax.dynamic_update_slice_in_dim(
                of_bias, sum_over_rows(of_logits, dtype), true_start, 0
            )
            return (of_vectors + more_of_vectors, of_table, of_bias), None

        # All of these two is written below.
        of_table, of_bias = (jax.lax.empty(x.shape, jnp.float32) for x in (table, bias))
        initial = (jnp.zeros(vectors.shape), of_table, of_bias)
        # The last block comes first: those of its entries that the block before has too, and which
        # are 0 in it, are then written over, and nothing is read to be added to.
        turns = devices.unrolled(len(starts))
        ended, _ = jax.lax.scan(body, initial, starts, reverse=True, unroll=turns)
        of_vectors, of_table, of_bias = ended
        return of_vectors, of_table, devices.summed(of_bias)

    inputs = (ROWS, TABLE, REPLICATED, ROWS, ROWS, ROWS)
    per_device = devices.per_device(of_rows, inputs, (ROWS, TABLE, REPLICATED))
    return *per_device(*saved, gradients[0]), None


_cross_entropy = with_gradient(_forward, _backward, static=(4, 5))
