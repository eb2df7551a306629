"""Logits of a block of the vocabulary, their statistics and their gradient."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import Specified, check
from xlj.models.dense import product
from xlj.sharding import devices

BLOCK = 16_384
"""Number of vocabulary entries whose logits are in memory at a time."""

_is_one_block: ContextVar[bool] = ContextVar("is_one_block", default=False)


@contextlib.contextmanager
def in_one_block() -> Iterator[None]:
    """Makes the vocabulary one block whose logits are kept, inside a `with` block.

    It is used to trace programs whose operations are counted, and which never run.
    """
    before = _is_one_block.set(True)
    try:
        yield
    finally:
        _is_one_block.reset(before)


def is_one_block() -> bool:
    """Returns whether the vocabulary is one block, that is, inside `in_one_block`."""
    return _is_one_block.get()


def block_starts(table: jax.Array, block: int) -> tuple[int, jax.Array]:
    """Returns the size of a block, and where each block starts (`block_of` moves the last)."""
    check("block_starts", table=("float [vocabulary, hidden]", table))
    size = table.shape[0] if is_one_block() else min(block, table.shape[0])
    return size, jnp.arange(0, table.shape[0], size)


def block_of(
    table: jax.Array, bias: jax.Array, start: jax.Array, size: int, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns weights [size, hidden] and biases [size] of the block at `start`, and its true start.

    The last block is moved back to fit. It then begins with entries that the block before it has
    too.
    """
    check(
        "block_of",
        table=("float [vocabulary, hidden]", table),
        bias=("float [vocabulary]", bias),
        start=("int []", start),
    )
    true_start = jnp.minimum(start, table.shape[0] - size)
    weights = jax.lax.dynamic_slice_in_dim(table, true_start, size)
    biases = jax.lax.dynamic_slice_in_dim(bias, true_start, size)
    return devices.all_gather(weights.astype(dtype), 1), biases, true_start


def check_factors(
    function: str,
    vectors: jax.Array,
    table: jax.Array,
    bias: jax.Array,
    **of_vectors: Specified,
) -> None:
    """Checks the arguments of a function of logits over the whole vocabulary with
    `xlj.contracts.arrays.check`."""
    check(
        function,
        vectors=("float32 [n, hidden]", vectors),
        table=("float32 [vocabulary, hidden]", table),
        bias=("float32 [vocabulary]", bias),
        **of_vectors,
    )


_OF_BLOCK = {
    "vectors": "float [n, hidden]",
    "weights": "float [size, hidden]",
    "bias": "float32 [size]",
    "first": "int []",
    "labels": "int32 [n]",
    "normaliser": "float32 [n]",
    "of_loss": "float32 [n]",
}


def check_block(function: str, *arrays: jax.Array) -> None:
    """Checks the arguments of a function of a block of the vocabulary, in the order of `_OF_BLOCK`,
    with `xlj.contracts.arrays.check`."""
    arguments = zip(_OF_BLOCK.items(), arrays, strict=False)
    check(function, **{name: (specified, array) for (name, specified), array in arguments})


def products(vectors: jax.Array, weights: jax.Array) -> jax.Array:
    """Multiplies vectors [n, hidden] with weights [size, hidden]: logits without bias, [n, size].

    The products are in the type of the weights, their sums in float32. On GPUs the result has the
    type of the weights: writing bfloat16 costs no extra time, and later operations read half as
    many bytes. On other platforms it is float32.
    """
    check(
        "products",
        vectors=("float [n, hidden]", vectors),
        weights=("float [size, hidden]", weights),
    )
    logits = product(vectors, weights, weights.dtype, right_axis=1)
    if devices.platform() != "gpu":
        return logits
    return jax.lax.optimization_barrier(logits.astype(weights.dtype))


def block_logits(
    vectors: jax.Array, weights: jax.Array, bias: jax.Array, first: jax.Array
) -> jax.Array:
    """Returns the logits of a block, float32 [n, size]; -inf for places before `first`.

    Args:
      vectors: [n, hidden].
      weights: [size, hidden].
      bias: float32 [size].
      first: int32, the first place of the block that counts.
    """
    check_block("block_logits", vectors, weights, bias, first)
    logits = products(vectors, weights).astype(jnp.float32) + bias
    return jnp.where(jnp.arange(len(bias)) >= first, logits, -jnp.inf)


def statistics(
    vectors: jax.Array, weights: jax.Array, bias: jax.Array, labels: jax.Array, first: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Computes the statistics of a block's logits that `cross_entropy` needs, for each vector.

    Args:
      vectors: [n, hidden].
      weights: [size, hidden].
      bias: float32 [size].
      labels: int32 [n], places in the block; labels of other blocks are outside of it.
      first: int32, the first place of the block that counts; logits before it are -inf.

    Returns:
      [n] each: the largest logit, the sum of exponentials relative to it, the first place that has
      it, and the label's logit, 0 if the label is in another block.
    """
    check_block("statistics", vectors, weights, bias, first, labels)
    logits = block_logits(vectors, weights, bias, first)
    largest = logits.max(1)
    places = jnp.arange(len(bias), dtype=jnp.int32)
    place = jnp.where(logits == largest[:, None], places, jnp.iinfo(jnp.int32).max).min(1)
    of_label = jnp.where(_is_label(labels, first, len(bias)), logits, 0).sum(1)
    return largest, jnp.exp(logits - largest[:, None]).sum(1), place, of_label


def gradient(
    vectors: jax.Array,
    weights: jax.Array,
    bias: jax.Array,
    labels: jax.Array,
    first: jax.Array,
    normaliser: jax.Array,
    of_loss: jax.Array,
) -> jax.Array:
    """Computes the gradient of a block's logits, [n, size] of the weights' type.

    Args:
      vectors, weights, bias, labels, first: as in `statistics`.
      normaliser: float32 [n], the logarithm of the sum of exponentials of all logits.
      of_loss: float32 [n], the gradient with respect to each loss.
    """
    check_block("gradient", vectors, weights, bias, first, labels, normaliser, of_loss)
    probabilities = jnp.exp(block_logits(vectors, weights, bias, first) - normaliser[:, None])
    is_label = _is_label(labels, first, len(bias))
    of_logits = ((probabilities - is_label) * of_loss[:, None]).astype(weights.dtype)
    # The barrier makes XLA round first, so that no float32 array is written to memory.
    return jax.lax.optimization_barrier(of_logits)


def _is_label(labels: jax.Array, first: jax.Array, size: int) -> jax.Array:
    places = jnp.arange(size, dtype=jnp.int32)
    return (places == labels[:, None]) & (places >= first)
