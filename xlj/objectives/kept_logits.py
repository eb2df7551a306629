"""Cross-entropy of so few vectors that all their logits can be kept for the gradient.

Block by block each logit is computed twice, and each block's part of the table's gradient is copied
to its place, which takes a CPU longer than computing it.
"""

import jax
import jax.numpy as jnp

from xlj.models.dense import product, product_over_rows, sum_over_rows
from xlj.models.gradients import with_gradient
from xlj.objectives.logits import check_factors, is_one_block, products
from xlj.sharding import devices
from xlj.sharding.rules import REPLICATED, ROWS

MOST = {"cpu": 2**28, "gpu": 5 * 2**28}
"""Bytes of logits that are kept at most, by platform; none on TPUs, where nothing was measured."""

_ALIGNED = 64
"""On GPUs a row of logits has a multiple of as many: tensor cores read rows that begin at multiples
of 128 bytes."""

Saved = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]
"""Vectors, table, bias, labels, logits without their bias, the logarithm of each vector's sum."""


def is_used(vectors: int, vocabulary: int, dtype: jnp.dtype) -> bool:
    """Whether all logits of so many vectors, products in a type, are kept here: not where devices
    share the table, of which each would gather all."""
    if is_one_block():
        return True
    width = dtype.itemsize if devices.platform() == "gpu" else 4
    few = vectors * vocabulary * width <= MOST.get(devices.platform(), 0)
    return few and not devices.are_shared()


def cross_entropy(
    vectors: jax.Array, table: jax.Array, bias: jax.Array, labels: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array]:
    """As `xlj.objectives.cross_entropy.cross_entropy`, of all blocks at once."""
    check_factors("cross_entropy", vectors, table, bias, labels=("int32 [n]", labels))
    return _cross_entropy(vectors, table, bias, labels, dtype)


def _forward(
    vectors: jax.Array, table: jax.Array, bias: jax.Array, labels: jax.Array, dtype: jnp.dtype
) -> tuple[tuple[jax.Array, jax.Array], Saved]:
    def of_rows(
        vectors: jax.Array, table: jax.Array, bias: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, ...]:
        table, bias = _aligned(table, bias, dtype)
        unbiased = products(vectors.astype(dtype), table)
        logits = unbiased.astype(jnp.float32) + bias
        largest = logits.max(1, keepdims=True)
        normaliser = largest[:, 0] + jnp.log(jnp.exp(logits - largest).sum(1))
        at = labels[:, None]
        of_label = jnp.take_along_axis(unbiased, at, 1, mode="fill", fill_value=0)
        of_label = of_label.astype(jnp.float32) + bias.at[at].get(mode="fill", fill_value=0)
        # Among equals the first is the best.
        before = jnp.arange(len(bias), dtype=jnp.int32) < at
        beaten = ((logits > of_label) | ((logits == of_label) & before)).any(1)
        return normaliser - of_label[:, 0], (~beaten).astype(jnp.float32), unbiased, normaliser

    per_device = devices.per_device(of_rows, (ROWS, REPLICATED, REPLICATED, ROWS), ROWS)
    losses, correct, unbiased, normaliser = per_device(vectors, table, bias, labels)
    return (losses, correct), (vectors, table, bias, labels, unbiased, normaliser)


def _backward(
    dtype: jnp.dtype, saved: Saved, gradients: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array | None, ...]:
    def of_rows(
        vectors: jax.Array,
        table: jax.Array,
        bias: jax.Array,
        labels: jax.Array,
        unbiased: jax.Array,
        normaliser: jax.Array,
        of_loss: jax.Array,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        vocabulary = len(table)
        table, bias = _aligned(table, bias, dtype)
        is_label = jnp.arange(len(bias), dtype=jnp.int32) == labels[:, None]
        probabilities = jnp.exp(unbiased.astype(jnp.float32) + bias - normaliser[:, None])
        of_logits = ((probabilities - is_label) * of_loss[:, None]).astype(dtype)
        # Rounded before anything is made of it: float32 is not written to memory.
        of_logits = jax.lax.optimization_barrier(of_logits)
        of_table = product_over_rows(of_logits, vectors, dtype)[:vocabulary]
        of_bias = sum_over_rows(of_logits, dtype)[:vocabulary]
        of_vectors = product(of_logits, table, dtype)
        return of_vectors, devices.summed(of_table), devices.summed(of_bias)

    inputs = (ROWS, REPLICATED, REPLICATED, ROWS, ROWS, ROWS, ROWS)
    per_device = devices.per_device(of_rows, inputs, (ROWS, REPLICATED, REPLICATED))
    return *per_device(*saved, gradients[0]), None


def _aligned(table: jax.Array, bias: jax.Array, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """The table in a type, and the bias; on GPUs with more ids, which have no probability."""
    more = -len(table) % _ALIGNED if devices.platform() == "gpu" else 0
    if not more:
        return table.astype(dtype), bias
    table = jnp.pad(table.astype(dtype), [(0, more), (0, 0)])
    return table, jnp.pad(bias, (0, more), constant_values=-jnp.inf)


_cross_entropy = with_gradient(_forward, _backward, static=(4,))
