"""Logits of a block of the vocabulary: their statistics, their gradient, and the choice of a token,
by argmax or as a sample from the softmax.
"""

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import Specified, check
from xlj.models.lowering import is_counting, product, rounded, rounded_on_gpus
from xlj.sharding import devices
from xlj.sharding.devices import REPLICATED, ROWS, TABLE

BLOCK = 16_384
"""Number of vocabulary entries per block. The logits of one block are in memory at a time."""


def block_starts(table: jax.Array, block: int) -> tuple[int, jax.Array]:
    """Returns the size of a block, and the first vocabulary entry of each block.

    The last block may exceed the vocabulary; `block_of` then moves it back.

    Args:
      table: float [vocabulary, hidden].
      block: the size of a block. A smaller vocabulary is one block; inside `counting`, every
        vocabulary is.

    Returns:
      The size, and int32 [blocks].
    """
    check("block_starts", table=("float [vocabulary, hidden]", table))
    size = table.shape[0] if is_counting() else min(block, table.shape[0])
    return size, jnp.arange(0, table.shape[0], size)


def block_of(
    table: jax.Array, bias: jax.Array, start: jax.Array, size: int, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns a block of the table and the bias.

    A block that would exceed the vocabulary is moved back to fit. Its first entries then also
    belong to the previous block.

    Args:
      table: float [vocabulary, hidden]. If the table is split over devices, it is the slice of this
        device, [vocabulary, part of hidden].
      bias: float [vocabulary].
      start: first entry of the block, int [].
      size: number of entries of the block.
      dtype: the dtype of the returned weights.

    Returns:
      Weights [size, hidden] in `dtype`, gathered from all devices; biases [size]; and the entry at
      which the moved block starts, int [].
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
    **further: Specified,
) -> None:
    """Checks the arguments of a function of logits over the whole vocabulary.

    Args:
      function: the name of the function, for the message.
      further: other arguments, as (specification, array).

    Raises:
      AssertionError: if an array does not match (`xlj.contracts.arrays.check`).
    """
    check(
        function,
        vectors=("float32 [n, hidden]", vectors),
        table=("float32 [vocabulary, hidden]", table),
        bias=("float32 [vocabulary]", bias),
        **further,
    )


_OF_BLOCK = {
    "vectors": "float [n, hidden]",
    "weights": "float [size, hidden]",
    "bias": "float32 [size]",
    "first": "int []",
    "labels": "int32 [n]",
    "normaliser": "float32 [n]",
    "grad_loss": "float32 [n]",
}
"""The arguments of functions of one block of the vocabulary, and their specifications."""


def check_block(function: str, *arrays: jax.Array) -> None:
    """Checks the arguments of a function of one block of the vocabulary.

    Args:
      function: the name of the function, for the message.
      arrays: the arguments, in the order of `_OF_BLOCK`; the last ones may be left out.

    Raises:
      AssertionError: if an array does not match (`xlj.contracts.arrays.check`).
    """
    arguments = zip(_OF_BLOCK.items(), arrays, strict=False)
    check(function, **{name: (specified, array) for (name, specified), array in arguments})


def products(vectors: jax.Array, weights: jax.Array) -> jax.Array:
    """Computes the logits of a block without the bias, [n, size].

    The factors have the dtype of the weights, and sums are float32. On GPUs the result is rounded
    to the dtype of the weights: rounding takes no extra time there, and later operations read half
    as many bytes of bfloat16. On other platforms the result is float32.

    Args:
      vectors: float [n, hidden].
      weights: float [size, hidden].
    """
    check(
        "products",
        vectors=("float [n, hidden]", vectors),
        weights=("float [size, hidden]", weights),
    )
    logits = product(vectors, weights, weights.dtype, right_axis=1)
    return rounded_on_gpus(logits, weights.dtype)


def block_logits(
    vectors: jax.Array, weights: jax.Array, bias: jax.Array, first: jax.Array
) -> jax.Array:
    """Returns the logits of a block, float32 [n, size].

    Args:
      vectors: float [n, hidden].
      weights: float [size, hidden].
      bias: float32 [size].
      first: index in the block of the first entry that counts, int32 []. Earlier entries belong to
        the previous block too (`block_of`), so their logits are -inf.
    """
    check_block("block_logits", vectors, weights, bias, first)
    logits = products(vectors, weights).astype(jnp.float32) + bias
    return jnp.where(jnp.arange(len(bias)) >= first, logits, -jnp.inf)


def statistics(
    vectors: jax.Array, weights: jax.Array, bias: jax.Array, labels: jax.Array, first: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Computes the statistics of a block's logits that `cross_entropy` needs, for each vector.

    Args:
      vectors: float [n, hidden].
      weights: float [size, hidden].
      bias: float32 [size].
      labels: index of each label in the block, int32 [n]. Labels of other blocks have indices below
        0 or at least `size`.
      first: index in the block of the first entry that counts, int32 []; the logits of earlier
        entries are -inf.

    Returns:
      Four arrays [n]: the largest logit, float32; the sum of exp(logit - largest logit), float32;
      the first index in the block that has the largest logit, int32; and the logit of the label,
      float32, or 0 if the label is in another block.
    """
    check_block("statistics", vectors, weights, bias, first, labels)
    logits = block_logits(vectors, weights, bias, first)
    largest = logits.max(1)
    indices = jnp.arange(len(bias), dtype=jnp.int32)
    place = jnp.where(logits == largest[:, None], indices, jnp.iinfo(jnp.int32).max).min(1)
    label_logit = jnp.where(_is_label(labels, first, len(bias)), logits, 0).sum(1)
    return largest, jnp.exp(logits - largest[:, None]).sum(1), place, label_logit


def gradient(
    vectors: jax.Array,
    weights: jax.Array,
    bias: jax.Array,
    labels: jax.Array,
    first: jax.Array,
    normaliser: jax.Array,
    grad_loss: jax.Array,
) -> jax.Array:
    """Computes the gradient of a block's logits, [n, size] in the dtype of the weights.

    Args:
      vectors, weights, bias, labels, first: the arguments of `statistics`.
      normaliser: the log of the sum of exponentials of all logits, float32 [n].
      grad_loss: the gradient of each loss, float32 [n].
    """
    check_block("gradient", vectors, weights, bias, first, labels, normaliser, grad_loss)
    probabilities = jnp.exp(block_logits(vectors, weights, bias, first) - normaliser[:, None])
    is_label = _is_label(labels, first, len(bias))
    return rounded((probabilities - is_label) * grad_loss[:, None], weights.dtype)


def _is_label(labels: jax.Array, first: jax.Array, size: int) -> jax.Array:
    """Returns which entry of a block is the label of each vector, bool [n, size].

    Entries before `first`, the first entry that counts, are never labels.
    """
    indices = jnp.arange(size, dtype=jnp.int32)
    return (indices == labels[:, None]) & (indices >= first)


def choose(
    vectors: jax.Array,
    table: jax.Array,
    bias: jax.Array,
    dtype: jnp.dtype,
    rngs: jax.Array | None = None,
    temperature: float = 1.0,
    block: int = BLOCK,
) -> jax.Array:
    """Returns the argmax of vectors @ table.T + bias, or, with `rngs`, a sample from the softmax.

    Samples use the Gumbel-max trick. The logits of one block are in memory at a time. No gradient
    passes through the result.

    Args:
      vectors: float32 [n, hidden].
      table: float32 [vocabulary, hidden].
      bias: float32 [vocabulary]; a token with -inf is never chosen.
      dtype: the dtype to which vectors and table are rounded before their product.
      rngs: a random key for each vector, [n]; None for the argmax.
      temperature: divisor of the logits before sampling.
      block: number of vocabulary entries per block.

    Returns:
      Token ids, int32 [n].
    """
    check_factors("choose", vectors, table, bias, rngs=("key [n]", rngs))
    vectors, table, bias = jax.lax.stop_gradient((vectors, table, bias))

    def compute_on_device(
        vectors: jax.Array, table: jax.Array, bias: jax.Array, rngs: jax.Array | None
    ) -> jax.Array:
        size, starts = block_starts(table, block)

        def body(carry: tuple[jax.Array, jax.Array], start: jax.Array) -> tuple:
            largest, best = carry
            weights, biases, true_start = block_of(table, bias, start, size, dtype)
            scores = block_logits(vectors, weights, biases, start - true_start)  # [n, size]
            if rngs is not None:
                here = jax.vmap(jax.random.fold_in, (0, None))(rngs, start)
                scores /= temperature
                scores += jax.vmap(lambda rng: jax.random.gumbel(rng, (size,)))(here)
            top = scores.max(1)
            best = jnp.where(top > largest, scores.argmax(1).astype(jnp.int32) + true_start, best)
            return (jnp.maximum(largest, top), best), None

        initial = (jnp.full(len(vectors), -jnp.inf), jnp.zeros(len(vectors), jnp.int32))
        unroll = devices.unroll_count(len(starts))
        return jax.lax.scan(body, initial, starts, unroll=unroll)[0][1]

    per_device = devices.per_device(compute_on_device, (ROWS, TABLE, REPLICATED, ROWS), ROWS)
    return per_device(vectors, table, bias, rngs)
