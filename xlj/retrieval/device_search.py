"""Computes a block of an exact search on JAX's device (`search.neighbours`)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from xlj.retrieval.search import ratio_margin, unit


def place(vectors: np.ndarray) -> jax.Array:
    """Copies vectors to the device."""
    return jnp.asarray(vectors)


@partial(jax.jit, static_argnames=("count", "columns"))
def nearest_on_device(
    source: jax.Array,
    target: jax.Array,
    densities: tuple[jax.Array, jax.Array] | None,
    count: int,
    columns: int,
) -> tuple[jax.Array, jax.Array]:
    """Returns the scores and indices of the best targets, [rows, count].

    Args:
      densities: of the sources [rows] and of all targets, as in `neighbours`; None for cosines.
      columns: how many targets are compared at a time.
    """
    queries, last = unit(source, jnp), len(target) - columns

    def merge_block(
        block: jax.Array, best: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        start = jnp.minimum(block * columns, last)
        keys = unit(jax.lax.dynamic_slice_in_dim(target, start, columns), jnp)
        scores = jnp.matmul(queries, keys.T, precision=jax.lax.Precision.HIGHEST)
        if densities is not None:
            source_densities, target_densities = densities
            target_densities = jax.lax.dynamic_slice_in_dim(target_densities, start, columns)
            scores = ratio_margin(scores, source_densities[:, None], target_densities)
        places = start + jnp.arange(columns)
        scores = jnp.where(places >= block * columns, scores, -jnp.inf)
        # Among equal values, top_k prefers the first. Earlier blocks have lower indices.
        of_block, at = jax.lax.top_k(scores, min(count, columns))
        scores = jnp.concatenate([best[0], of_block], 1)
        indices = jnp.concatenate([best[1], places[at]], 1)
        scores, at = jax.lax.top_k(scores, count)
        return scores, jnp.take_along_axis(indices, at, 1)

    empty = jnp.full((len(source), count), -jnp.inf), jnp.zeros((len(source), count), jnp.int32)
    return jax.lax.fori_loop(0, -(-len(target) // columns), merge_block, empty)
