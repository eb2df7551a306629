"""Chooses tokens of a large vocabulary: the argmax of the logits, or a sample from the softmax."""

import jax
import jax.numpy as jnp

from xlj.objectives.vocabulary.logits import (
    BLOCK,
    block_logits,
    block_of,
    block_starts,
    check_factors,
)
from xlj.sharding import devices
from xlj.sharding.rules import REPLICATED, ROWS, TABLE


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
