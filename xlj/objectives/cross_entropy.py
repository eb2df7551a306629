"""Cross-entropy over a large vocabulary, block by block, without ever holding all the logits."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from xlj.models import sharding
from xlj.models.dense import product, transposed
from xlj.models.sharding import REPLICATED, ROWS, TABLE

BLOCK = 16_384
"""Vocabulary entries whose logits are held at a time."""


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def cross_entropy(
    vectors: jax.Array,
    table: jax.Array,
    bias: jax.Array,
    labels: jax.Array,
    dtype: jnp.dtype,
    block: int = BLOCK,
) -> tuple[jax.Array, jax.Array]:
    """Negative log-likelihood of labels under softmax(vectors @ table.T + bias).

    Args:
      vectors: float32 [n, hidden].
      table: float32 [vocabulary, hidden].
      bias: float32 [vocabulary].
      labels: int32 [n].
      dtype: what the products are computed in; sums are float32.
      block: vocabulary entries at a time; the backward pass computes each block's logits again.

    Returns:
      losses float32 [n], and whether the label has the largest logit, float32 [n] (no gradient).
    """
    return _forward(vectors, table, bias, labels, dtype, block)[0]


def block_starts(table: jax.Array, block: int) -> tuple[int, jax.Array]:
    """The size of a block, and where each starts; the last one is moved back to fit."""
    size = min(block, table.shape[0])
    return size, jnp.arange(0, table.shape[0], size)


def block_logits(
    vectors: jax.Array, table: jax.Array, bias: jax.Array, start: jax.Array, size: int, dtype: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Logits [n, size] of the block that begins at `start`, its true start, and its weights.

    Entries that the block before had already are -inf.
    """
    true_start = jnp.minimum(start, table.shape[0] - size)
    weights = jax.lax.dynamic_slice_in_dim(table, true_start, size)
    weights = sharding.gathered(weights.astype(dtype), 1)
    logits = product(vectors, weights, dtype, right_axis=1)
    logits = logits + jax.lax.dynamic_slice_in_dim(bias, true_start, size)
    new = jnp.arange(size) >= start - true_start
    return jnp.where(new, logits, -jnp.inf), true_start, weights


def _forward(
    vectors: jax.Array,
    table: jax.Array,
    bias: jax.Array,
    labels: jax.Array,
    dtype: jnp.dtype,
    block: int,
) -> tuple[tuple[jax.Array, jax.Array], Any]:
    def of_rows(
        vectors: jax.Array, table: jax.Array, bias: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        size, starts = block_starts(table, block)

        def body(carry: Any, start: jax.Array) -> tuple[Any, None]:
            largest, best, total, of_label = carry
            logits, true_start, _ = block_logits(vectors, table, bias, start, size, dtype)
            ids = true_start + jnp.arange(size, dtype=jnp.int32)
            is_label = (ids == labels[:, None]) & (ids >= start)
            here, more, first, picked = _statistics(logits, ids, is_label)
            new_largest = jnp.maximum(largest, here)
            best = jnp.where(here > largest, first, best)
            total = total * jnp.exp(largest - new_largest) + more * jnp.exp(here - new_largest)
            of_label = of_label + picked
            return (new_largest, best, total, of_label), None

        count = len(vectors)
        zeros = jnp.zeros(count)
        initial = (jnp.full(count, -jnp.inf), jnp.zeros(count, jnp.int32), zeros, zeros)
        (largest, best, total, of_label), _ = jax.lax.scan(body, initial, starts)
        normaliser = largest + jnp.log(total)
        return normaliser - of_label, (best == labels).astype(jnp.float32), normaliser

    per_device = sharding.per_device(of_rows, (ROWS, TABLE, REPLICATED, ROWS), ROWS)
    losses, correct, normaliser = per_device(vectors, table, bias, labels)
    return (losses, correct), (vectors, table, bias, labels, normaliser)


def _statistics(
    logits: jax.Array, ids: jax.Array, is_label: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Of each row of logits [n, size] the largest, the sum of exponentials relative to it, the
    first id [size] that has it, and the sum of those where `is_label`."""
    at_label = jnp.where(is_label, logits, 0)
    if sharding.platform() != "gpu":
        largest = logits.max(1)
        is_largest = logits == largest[:, None]
        first = jnp.where(is_largest, ids, jnp.iinfo(jnp.int32).max).min(1)
        return largest, jnp.exp(logits - largest[:, None]).sum(1), first, at_label.sum(1)

    def both(a: Any, b: Any) -> Any:
        """Of two parts, in one pass: on a GPU each pass reads the logits from memory."""
        largest = jnp.maximum(a[0], b[0])
        totals = [jnp.where(x[0] == largest, 1, jnp.exp(x[0] - largest)) * x[1] for x in (a, b)]
        firsts = [jnp.where(x[0] == largest, x[2], jnp.iinfo(jnp.int32).max) for x in (a, b)]
        return largest, totals[0] + totals[1], jnp.minimum(*firsts), a[3] + b[3]

    parts = logits, jnp.ones_like(logits), jnp.broadcast_to(ids, logits.shape), at_label
    nothing = -jnp.inf, 0.0, jnp.iinfo(jnp.int32).max, 0.0
    empty = tuple(jnp.asarray(x, part.dtype) for x, part in zip(nothing, parts, strict=True))
    return jax.lax.reduce(parts, empty, both, (1,))


def _backward(dtype: jnp.dtype, block: int, saved: Any, gradients: Any) -> tuple[Any, ...]:
    def of_rows(
        vectors: jax.Array,
        table: jax.Array,
        bias: jax.Array,
        labels: jax.Array,
        normaliser: jax.Array,
        of_loss: jax.Array,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        size, starts = block_starts(table, block)
        by_dimension = transposed(vectors.astype(dtype))

        def body(carry: Any, start: jax.Array) -> tuple[Any, None]:
            of_vectors, of_table, of_bias = carry
            logits, true_start, weights = block_logits(vectors, table, bias, start, size, dtype)
            probabilities = jnp.exp(logits - normaliser[:, None])
            ids = true_start + jnp.arange(size)
            is_label = (ids == labels[:, None]) & (ids >= start)
            # Rounded before anything is made of it: float32 is not written to memory.
            of_logits = ((probabilities - is_label) * of_loss[:, None]).astype(dtype)
            of_logits = jax.lax.optimization_barrier(of_logits)
            more_of_vectors = product(of_logits, weights, dtype)
            of_weights = sharding.summed(product(by_dimension, of_logits, dtype), 0)
            of_table = jax.lax.dynamic_update_slice_in_dim(of_table, of_weights.T, true_start, 0)
            of_bias = jax.lax.dynamic_update_slice_in_dim(
                of_bias, of_logits.sum(0, dtype=jnp.float32), true_start, 0
            )
            return (of_vectors + more_of_vectors, of_table, of_bias), None

        of_table = jax.lax.empty(table.shape, jnp.float32)  # all of it is written below
        initial = (jnp.zeros_like(vectors), of_table, jnp.zeros_like(bias))
        # The last block comes first: those of its entries that the block before has too, and which
        # are 0 in it, are then written over, and nothing is read to be added to.
        (of_vectors, of_table, of_bias), _ = jax.lax.scan(body, initial, starts, reverse=True)
        return of_vectors, of_table, sharding.summed(of_bias)

    inputs = (ROWS, TABLE, REPLICATED, ROWS, ROWS, ROWS)
    per_device = sharding.per_device(of_rows, inputs, (ROWS, TABLE, REPLICATED))
    return *per_device(*saved, gradients[0]), None


cross_entropy.defvjp(_forward, _backward)
