"""Logits of a block of the vocabulary, and what a loss needs of them."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import Specified, check
from xlj.models.dense import product
from xlj.sharding import devices

BLOCK = 16_384
"""Vocabulary entries whose logits are held at a time."""

_is_one_block: ContextVar[bool] = ContextVar("is_one_block", default=False)


@contextlib.contextmanager
def in_one_block() -> Iterator[None]:
    """Inside, the vocabulary is one block whose logits are kept: for programs that are traced to be
    counted, and never run."""
    before = _is_one_block.set(True)
    try:
        yield
    finally:
        _is_one_block.reset(before)


def is_one_block() -> bool:
    """Whether the vocabulary is one block, inside of `in_one_block`."""
    return _is_one_block.get()


def block_starts(table: jax.Array, block: int) -> tuple[int, jax.Array]:
    """The size of a block, and where each starts; the last one is moved back to fit."""
    check("block_starts", table=("float [vocabulary, hidden]", table))
    size = table.shape[0] if is_one_block() else min(block, table.shape[0])
    return size, jnp.arange(0, table.shape[0], size)


def block_of(
    table: jax.Array, bias: jax.Array, start: jax.Array, size: int, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The weights [size, hidden] and biases [size] of the block that begins at `start`, and its
    true start. Entries that the block before had already come first in it."""
    check(
        "block_of",
        table=("float [vocabulary, hidden]", table),
        bias=("float [vocabulary]", bias),
        start=("int []", start),
    )
    true_start = jnp.minimum(start, table.shape[0] - size)
    weights = jax.lax.dynamic_slice_in_dim(table, true_start, size)
    biases = jax.lax.dynamic_slice_in_dim(bias, true_start, size)
    return devices.gathered(weights.astype(dtype), 1), biases, true_start


def check_factors(
    function: str,
    vectors: jax.Array,
    table: jax.Array,
    bias: jax.Array,
    **of_vectors: Specified,
) -> None:
    """Checks what a function of logits over the whole vocabulary is given, as
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
    """Checks what a function of a block of the vocabulary is given, the first of `_OF_BLOCK`, as
    `xlj.contracts.arrays.check`."""
    given = zip(_OF_BLOCK.items(), arrays, strict=False)
    check(function, **{name: (specified, array) for (name, specified), array in given})


def products(vectors: jax.Array, weights: jax.Array) -> jax.Array:
    """Logits without their bias, [n, size]: vectors [n, hidden] times weights [size, hidden],
    multiplied in the weights' type and summed in float32.

    On GPUs they are of the weights' type: a library writes bfloat16 as fast as it multiplies, and
    what is computed from them reads half as much. Elsewhere they are float32.
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
    """float32 [n, size]: `products` of vectors [n, hidden] and weights [size, hidden], plus bias
    [size]; -inf for places before `first`."""
    check_block("block_logits", vectors, weights, bias, first)
    logits = products(vectors, weights).astype(jnp.float32) + bias
    return jnp.where(jnp.arange(len(bias)) >= first, logits, -jnp.inf)


def statistics(
    vectors: jax.Array, weights: jax.Array, bias: jax.Array, labels: jax.Array, first: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """What `cross_entropy` needs of a block's logits, for each vector.

    Args:
      vectors: [n, hidden].
      weights: [size, hidden].
      bias: float32 [size].
      labels: int32 [n], places in the block; those outside of it are not found.
      first: int32, the block's first place that counts; logits before are -inf.

    Returns:
      [n] each: the largest logit, the sum of exponentials relative to it, the first place that has
      it, and the label's logit, 0 if it is not here.
    """
    check_block("statistics", vectors, weights, bias, first, labels)
    found = block_logits(vectors, weights, bias, first)
    largest = found.max(1)
    places = jnp.arange(len(bias), dtype=jnp.int32)
    place = jnp.where(found == largest[:, None], places, jnp.iinfo(jnp.int32).max).min(1)
    of_label = jnp.where(_is_label(labels, first, len(bias)), found, 0).sum(1)
    return largest, jnp.exp(found - largest[:, None]).sum(1), place, of_label


def gradient(
    vectors: jax.Array,
    weights: jax.Array,
    bias: jax.Array,
    labels: jax.Array,
    first: jax.Array,
    normaliser: jax.Array,
    of_loss: jax.Array,
) -> jax.Array:
    """The gradient of a block's logits, [n, size] of the weights' type.

    Args:
      vectors, weights, bias, labels, first: as in `statistics`.
      normaliser: float32 [n], the logarithm of the sum of exponentials of all logits.
      of_loss: float32 [n], the gradient of each loss.
    """
    check_block("gradient", vectors, weights, bias, first, labels, normaliser, of_loss)
    probabilities = jnp.exp(block_logits(vectors, weights, bias, first) - normaliser[:, None])
    is_label = _is_label(labels, first, len(bias))
    of_logits = ((probabilities - is_label) * of_loss[:, None]).astype(weights.dtype)
    # Rounded before anything is made of it: float32 is not written to memory.
    return jax.lax.optimization_barrier(of_logits)


def _is_label(labels: jax.Array, first: jax.Array, size: int) -> jax.Array:
    places = jnp.arange(size, dtype=jnp.int32)
    return (places == labels[:, None]) & (places >= first)
