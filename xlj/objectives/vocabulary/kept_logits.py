"""Cross-entropy that keeps all logits for the backward pass; used if they need little memory.

For few vectors, this is faster than `cross_entropy.py`, which works on blocks of the vocabulary.
The version with blocks computes each logit twice. It also copies the gradient of each block into
the gradient of the table. On a CPU, this copy takes longer than the computation.
"""

import jax
import jax.numpy as jnp

from xlj.models.lowering import (
    is_counting,
    product,
    product_dtype,
    product_over_rows,
    rounded,
    row_multiple,
    sum_over_rows,
    with_gradient,
)
from xlj.objectives.vocabulary.logits import check_factors, products
from xlj.sharding import devices
from xlj.sharding.devices import REPLICATED, ROWS

MOST = {"cpu": 2**28, "gpu": 5 * 2**28}
"""Largest number of bytes of logits to keep, by platform. On TPUs the number is 0, since we have no
measurements on TPUs."""

Saved = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]
"""Saved for the backward pass: vectors, table, bias, labels, logits without bias, and the log of
the sum of exponentials of each vector's logits."""


def is_used(vectors: int, vocabulary: int, dtype: jnp.dtype) -> bool:
    """Returns whether to use this module instead of blocks of the vocabulary.

    It is used if all logits need at most `MOST` bytes, and each device has the whole table. If the
    table is split over devices, each device would have to gather it. Inside `counting`, this
    module is always used.

    Args:
      vectors: number of vectors.
      vocabulary: number of vocabulary entries.
      dtype: the dtype of the factors of products.
    """
    if is_counting():
        return True
    width = product_dtype(dtype).itemsize
    few = vectors * vocabulary * width <= MOST.get(devices.platform(), 0)
    return few and not devices.are_shared()


def cross_entropy(
    vectors: jax.Array, table: jax.Array, bias: jax.Array, labels: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array]:
    """Computes the negative log-likelihood of labels under softmax(vectors @ table.T + bias).

    Args:
      vectors: float32 [n, hidden].
      table: float32 [vocabulary, hidden].
      bias: float32 [vocabulary].
      labels: int32 [n].
      dtype: the dtype to which the factors of products are rounded; sums are float32.

    Returns:
      Two arrays, float32 [n] each: the losses; and 1 where the label has the largest logit, else 0,
      without gradient.
    """
    check_factors("cross_entropy", vectors, table, bias, labels=("int32 [n]", labels))
    return _cross_entropy(vectors, table, bias, labels, dtype)


def _forward(
    vectors: jax.Array, table: jax.Array, bias: jax.Array, labels: jax.Array, dtype: jnp.dtype
) -> tuple[tuple[jax.Array, jax.Array], Saved]:
    """Computes the results of `cross_entropy`, and the values that `_backward` needs."""

    def compute_on_device(
        vectors: jax.Array, table: jax.Array, bias: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, ...]:
        table, bias = _aligned(table, bias, dtype)
        unbiased = products(vectors.astype(dtype), table)  # [n, vocabulary], like logits
        logits = unbiased.astype(jnp.float32) + bias
        largest = logits.max(1, keepdims=True)
        normaliser = largest[:, 0] + jnp.log(jnp.exp(logits - largest).sum(1))  # [n]
        at = labels[:, None]  # [n, 1], like label_logit
        label_logit = jnp.take_along_axis(unbiased, at, 1, mode="fill", fill_value=0)
        label_logit = label_logit.astype(jnp.float32) + bias.at[at].get(mode="fill", fill_value=0)
        # Among equal logits, the first one is the prediction. So the label is not the prediction if
        # any logit is larger than its logit, or if an equal logit comes before it.
        before = jnp.arange(len(bias), dtype=jnp.int32) < at
        beaten = ((logits > label_logit) | ((logits == label_logit) & before)).any(1)
        return normaliser - label_logit[:, 0], (~beaten).astype(jnp.float32), unbiased, normaliser

    per_device = devices.per_device(compute_on_device, (ROWS, REPLICATED, REPLICATED, ROWS), ROWS)
    losses, correct, unbiased, normaliser = per_device(vectors, table, bias, labels)
    return (losses, correct), (vectors, table, bias, labels, unbiased, normaliser)


def _backward(
    dtype: jnp.dtype, saved: Saved, gradients: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array | None, ...]:
    """Computes the gradients of vectors, table and bias; None is the gradient of the labels."""

    def compute_on_device(
        vectors: jax.Array,
        table: jax.Array,
        bias: jax.Array,
        labels: jax.Array,
        unbiased: jax.Array,
        normaliser: jax.Array,
        grad_loss: jax.Array,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        vocabulary = len(table)
        table, bias = _aligned(table, bias, dtype)
        is_label = jnp.arange(len(bias), dtype=jnp.int32) == labels[:, None]
        probabilities = jnp.exp(unbiased.astype(jnp.float32) + bias - normaliser[:, None])
        grad_logits = rounded((probabilities - is_label) * grad_loss[:, None], dtype)
        grad_table = product_over_rows(grad_logits, vectors, dtype)[:vocabulary]
        grad_bias = sum_over_rows(grad_logits, dtype)[:vocabulary]
        grad_vectors = product(grad_logits, table, dtype)
        return grad_vectors, devices.reduce_sum(grad_table), devices.reduce_sum(grad_bias)

    inputs = (ROWS, REPLICATED, REPLICATED, ROWS, ROWS, ROWS, ROWS)
    per_device = devices.per_device(compute_on_device, inputs, (ROWS, REPLICATED, REPLICATED))
    return *per_device(*saved, gradients[0]), None


def _aligned(table: jax.Array, bias: jax.Array, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """Returns the table in `dtype`, and the bias.

    On GPUs, both are padded (`row_multiple`). The bias of padding is -inf, so its probability is 0.
    """
    padding = -len(table) % row_multiple()
    if not padding:
        return table.astype(dtype), bias
    table = jnp.pad(table.astype(dtype), [(0, padding), (0, 0)])
    return table, jnp.pad(bias, (0, padding), constant_values=-jnp.inf)


_cross_entropy = with_gradient(_forward, _backward, static=(4,))
