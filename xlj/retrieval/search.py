"""Searches nearest neighbours exactly: computes all cosines, a block at a time. Translations are
retrieved in both directions.
"""

from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from xlj.config.choices import SIMILARITIES
from xlj.config.fields import check_choice

_ROWS, _COLUMNS = 2048, 8192  # the size of a block of cosines: 64 MiB

NEIGHBOURS = 4
"""Margins use the mean cosine with this number of nearest neighbours."""

_MIN_DENSITY = 1e-6  # keeps the margins of isolated sentences finite

Array = TypeVar("Array", np.ndarray, jax.Array)


def ratio_margin(cosines: Array, densities: Array, other_densities: Array) -> Array:
    """Divides cosines by the mean density of both sentences (Artetxe and Schwenk, 2019).

    Args:
      cosines: float [...], of pairs of sentences.
      densities, other_densities: of both sentences of each pair, in shapes that broadcast to
        [...]. The density of a sentence is its mean cosine with its nearest neighbours.
    """
    return cosines / ((densities + other_densities) / 2).clip(_MIN_DENSITY)


class Neighbours(NamedTuple):
    """The nearest targets of each source, best first.

    Attributes:
      scores: float32 [sources, count], cosines or margins.
      indices: int64 [sources, count], indices of targets.
    """

    scores: np.ndarray
    indices: np.ndarray


def neighbours(
    source: np.ndarray,
    target: np.ndarray,
    count: int = 1,
    densities: tuple[np.ndarray, np.ndarray] | None = None,
) -> Neighbours:
    """Finds the nearest targets of each source by cosine, or by margin.

    Ties go to the lowest index. The device must have memory for all targets and a block of cosines.

    Args:
      source, target: the vectors, float [n, width] and [m, width]; they need not have length 1.
      count: the number of neighbours. If there are fewer targets, all targets are returned.
      densities: float32 [n] and [m], the mean cosine of each source and target with the nearest
        neighbours. Each cosine is then divided by the mean of both densities (the ratio margin of
        Artetxe and Schwenk, 2019). None for cosines.
    """
    rows, columns = min(_ROWS, len(source)), min(_COLUMNS, len(target))
    count = min(count, len(target))
    scores = np.empty((len(source), count), np.float32)
    indices = np.empty((len(source), count), np.int64)
    targets = jnp.asarray(target)
    starts = range(0, len(source), rows)
    for start in tqdm(starts, "searching", disable=len(starts) < 8 or None, leave=False):
        # All blocks have one shape; the last block overlaps the previous one.
        start = min(start, len(source) - rows)
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
    """Returns the scores and indices of the best targets, [rows, count].

    Args:
      densities: of the sources [rows] and of all targets, as in `neighbours`; None for cosines.
      columns: how many targets are compared at a time.
    """
    queries, last = _unit(source), len(target) - columns

    def merge_block(
        block: jax.Array, best: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        start = jnp.minimum(block * columns, last)
        keys = _unit(jax.lax.dynamic_slice_in_dim(target, start, columns))
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


def _unit(vectors: jax.Array) -> jax.Array:
    vectors = vectors.astype(jnp.float32)
    return vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


class Nearest(NamedTuple):
    """The best partner of each sentence among all sentences of the other side.

    Attributes:
      targets: the best target of each source, arrays [sources, 1].
      sources: the best source of each target, arrays [targets, 1].
    """

    targets: Neighbours
    sources: Neighbours


class Accuracy(NamedTuple):
    """The share of sentences whose nearest neighbour is the translation (accuracy@1), from 0 to
    1."""

    source_to_target: float
    target_to_source: float


def centre(vectors: np.ndarray) -> None:
    """Subtracts the mean vector from the vectors of one language, in place.

    Args:
      vectors: float32 [..., n, hidden].

    Source: Libovický et al. (2020), "On the Language Neutrality of Pre-trained Multilingual
    Representations".
    """
    vectors -= vectors.mean(-2, dtype=np.float64, keepdims=True).astype(vectors.dtype)


def nearest(source: np.ndarray, target: np.ndarray, similarity: str = "cosine") -> Nearest:
    """Finds the nearest neighbours in both directions by exact search. Ties go to the lowest index.

    Args:
      source, target: the vectors, float [n, hidden] and [m, hidden].
      similarity: one of `choices.SIMILARITIES`.

    Raises:
      ConfigError: if the similarity is unknown.
    """
    check_choice("similarity", similarity, SIMILARITIES)
    if similarity == "cosine":
        return Nearest(neighbours(source, target), neighbours(target, source))
    densities = (
        _density(neighbours(source, target, NEIGHBOURS)),
        _density(neighbours(target, source, NEIGHBOURS)),
    )
    targets = neighbours(source, target, densities=densities)
    return Nearest(targets, neighbours(target, source, densities=densities[::-1]))


def accuracy(result: Nearest, translations: np.ndarray | None = None) -> Accuracy:
    """Computes how often the nearest sentence is the translation.

    Args:
      translations: int [targets], the index of the source that each target translates; None if
        source i and target i are translations. Sources without a target are distractors.
    """
    lines = np.arange(len(result.sources.indices))
    expected = lines if translations is None else translations
    return Accuracy(
        float((result.targets.indices[expected, 0] == lines).mean()),
        float((result.sources.indices[:, 0] == expected).mean()),
    )


def rank_by_margin(targets: Neighbours, sources: Neighbours) -> Nearest:
    """Returns for each sentence the candidate with the largest margin, in both directions.

    Args:
      targets: the candidates for each source sentence, [sources, count], best first by cosine.
      sources: the candidates for each target sentence, [targets, count].
    """
    densities = _density(targets), _density(sources)
    return Nearest(_best(targets, *densities), _best(sources, *densities[::-1]))


def _density(candidates: Neighbours) -> np.ndarray:
    """Computes the mean cosine of each sentence with its four nearest candidates, float32."""
    nearest = candidates.scores[:, :NEIGHBOURS]
    return np.where(np.isfinite(nearest), nearest, 0).mean(1)


def _best(
    candidates: Neighbours, query_densities: np.ndarray, key_densities: np.ndarray
) -> Neighbours:
    key_densities = key_densities[candidates.indices]
    margins = ratio_margin(candidates.scores, query_densities[:, None], key_densities)
    best = margins.argmax(1)[:, None]
    return Neighbours(
        *(np.take_along_axis(values, best, 1) for values in (margins, candidates.indices))
    )
