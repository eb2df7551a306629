"""Cross-entropy of so few vectors that all their logits can be kept for the gradient.

Block by block each logit is computed twice, and each block's part of the table's gradient is copied
to its place, which takes a CPU longer than computing it.
"""

import jax
import jax.numpy as jnp

from xlj.models.dense import cpu_layout_barrier, product, product_over_rows
from xlj.models.gradients import with_gradient
from xlj.objectives.logits import check_factors, is_one_block, products
from xlj.sharding import devices
from xlj.sharding.rules import REPLICATED, ROWS

MOST = {"cpu": 2**26, "gpu": 5 * 2**27}
"""Logits that are kept at most, by platform: 256 MiB of float32, 1.25 GiB of bfloat16. TPUs were
not tried."""

Saved = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]
"""Vectors, table, bias, labels, products, and the logarithm of each vector's sum."""


def is_used(vectors: int, vocabulary: int) -> bool:
    """Whether all logits of so many vectors are kept here: not where devices share the table, of
    which each would gather all."""
    if is_one_block():
        return True
    few = vectors * vocabulary <= MOST.get(devices.platform(), 0)
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
        unbiased = products(vectors.astype(dtype), table.astype(dtype))
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
        is_label = jnp.arange(len(bias), dtype=jnp.int32) == labels[:, None]
        probabilities = jnp.exp(unbiased.astype(jnp.float32) + bias - normaliser[:, None])
        of_logits = ((probabilities - is_label) * of_loss[:, None]).astype(dtype)
        # Written once, rounded, before anything is made of it.
        of_logits = jax.lax.optimization_barrier(of_logits)
        of_table = devices.summed(product_over_rows(of_logits, vectors, dtype))
        # XLA's sum over rows takes as long as a product of all of them.
        of_bias = devices.summed(product(jnp.ones((16, len(vectors))), of_logits, dtype)[0])
        return product(of_logits, table, dtype), of_table, of_bias

    inputs = (ROWS, REPLICATED, REPLICATED, ROWS, ROWS, ROWS, ROWS)
    per_device = devices.per_device(of_rows, inputs, (ROWS, REPLICATED, REPLICATED))
    return *per_device(*saved, gradients[0]), None


_cross_entropy = with_gradient(_forward, _backward, static=(4,))
