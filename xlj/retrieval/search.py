"""Exact search for nearest neighbours: every cosine is computed, a block at a time."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

_ROWS, _COLUMNS = 2048, 8192  # cosines held at a time: 64 MB

LEAST_DENSITY = 1e-6
"""Keeps the margin of a sentence finite that is like no other."""


class Neighbours(NamedTuple):
    """The nearest targets of each source, best first; of equals the one of the lowest index."""

    scores: np.ndarray  # float32 [sources, count]
    indices: np.ndarray  # int64 [sources, count]


def neighbours(
    source: np.ndarray,
    target: np.ndarray,
    count: int = 1,
    densities: tuple[np.ndarray, np.ndarray] | None = None,
) -> Neighbours:
    """The nearest targets of each source by cosine, or by margin.

    Memory beside `source`: `target` once on the device, and a block of cosines.

    Args:
      source, target: float [n, width] and [m, width], of any length.
      count: how many, at most; there are never more than m.
      densities: float32 [n] and [m]. If given, a cosine is divided by the mean of its source's and
        its target's (the ratio margin of Artetxe and Schwenk 2019).
    """
    rows, columns = min(_ROWS, len(source)), min(_COLUMNS, len(target))
    count = min(count, len(target))
    scores = np.empty((len(source), count), np.float32)
    indices = np.empty((len(source), count), np.int64)
    targets = jnp.asarray(target)
    starts = range(0, len(source), rows)
    for start in tqdm(starts, "searching", disable=len(starts) < 8 or None, leave=False):
        start = min(start, len(source) - rows)  # the last block is a whole one: one shape in all
        part = slice(start, start + rows)
        divisors = densities and (densities[0][part], densities[1])
        scores[part], indices[part] = _nearest(source[part], targets, divisors, count, columns)
    return Neighbours(scores, indices)


@partial(jax.jit, static_argnames=("count", "columns"))
def _nearest(
    source: jax.Array,
    target: jax.Array,
    densities: tuple[jax.Array, jax.Array] | None,
    count: int,
    columns: int,
) -> tuple[jax.Array, jax.Array]:
    """Scores and indices [rows, count] of the best of all targets, `columns` of them at a time."""
    queries, last = _unit(source), len(target) - columns

    def better(block: jax.Array, best: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        start = jnp.minimum(block * columns, last)
        keys = _unit(jax.lax.dynamic_slice_in_dim(target, start, columns))
        scores = jnp.matmul(queries, keys.T, precision=jax.lax.Precision.HIGHEST)
        if densities is not None:
            own, others = densities
            others = jax.lax.dynamic_slice_in_dim(others, start, columns)
            scores /= jnp.maximum((own[:, None] + others) / 2, LEAST_DENSITY)
        places = start + jnp.arange(columns)
        scores = jnp.where(places >= block * columns, scores, -jnp.inf)  # each target once
        # top_k puts the first of equals first; what was found before has lower indices.
        found, at = jax.lax.top_k(scores, min(count, columns))
        scores = jnp.concatenate([best[0], found], 1)
        indices = jnp.concatenate([best[1], places[at]], 1)
        scores, at = jax.lax.top_k(scores, count)
        return scores, jnp.take_along_axis(indices, at, 1)

    nothing = jnp.full((len(source), count), -jnp.inf), jnp.zeros((len(source), count), jnp.int32)
    return jax.lax.fori_loop(0, -(-len(target) // columns), better, nothing)


def _unit(vectors: jax.Array) -> jax.Array:
    vectors = vectors.astype(jnp.float32)
    return vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
