"""Searches nearest neighbours exactly: computes all cosines, a block at a time. Translations are
retrieved in both directions.
"""

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from tqdm import tqdm

from xlj.config.choices import SIMILARITIES
from xlj.config.fields import check_choice

if TYPE_CHECKING:  # types only: vectors of --backend=onnx are searched without JAX
    import jax

_ROWS, _COLUMNS = 2048, 8192  # the size of a block of cosines: 64 MiB, with NumPy 192

NEIGHBOURS = 4
"""Margins use the mean cosine with this number of nearest neighbours."""

_MIN_DENSITY = 1e-6  # keeps the margins of isolated sentences finite

Array = TypeVar("Array", np.ndarray, "jax.Array")


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

    In a process that uses JAX, JAX's device searches. It must have memory for all targets and a
    block of cosines. Otherwise, NumPy searches. Ties go to the lowest index.

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
    search: Any = _nearest
    targets: Any = target
    if sys.modules.get("jax"):
        from xlj.retrieval import device_search

        search, targets = device_search.nearest_on_device, device_search.place(target)
    starts = range(0, len(source), rows)
    for start in tqdm(starts, "searching", disable=len(starts) < 8 or None, leave=False):
        # All blocks have one shape; the last block overlaps the previous one.
        start = min(start, len(source) - rows)
        part = slice(start, start + rows)
        divisors = densities and (densities[0][part], densities[1])
        scores[part], indices[part] = search(source[part], targets, divisors, count, columns)
    return Neighbours(scores, indices)


def _nearest(
    source: np.ndarray,
    target: np.ndarray,
    densities: tuple[np.ndarray, np.ndarray] | None,
    count: int,
    columns: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Computes `device_search.nearest_on_device` with NumPy.

    Products are summed in float64: in float32, libraries such as OpenBLAS give equal vectors other
    products at other places of a matrix (measured on Zen 5), so ties would not be ties.
    """
    queries = unit(source, np).astype(np.float64)
    scores = np.full((len(source), count), -np.inf, np.float32)
    indices = np.zeros((len(source), count), np.int64)
    rows = np.arange(len(source))[:, None]
    for start in range(0, len(target), columns):
        part = slice(start, start + columns)
        of_block = (queries @ unit(target[part], np).T.astype(np.float64)).astype(np.float32)
        if densities is not None:
            of_block = ratio_margin(of_block, densities[0][:, None], densities[1][part])
        places = np.broadcast_to(np.arange(start, start + of_block.shape[1]), of_block.shape)
        scores = np.concatenate([scores, of_block], 1)
        indices = np.concatenate([indices, places], 1)
        best = _top(scores, count)
        scores, indices = scores[rows, best], indices[rows, best]
    return scores, indices


def _top(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns the columns of the highest scores of each row, best first, int64 [rows, count]. Ties
    go to the lowest column."""
    if count == 1:
        return scores.argmax(1)[:, None]
    lowest = np.partition(scores, -count, axis=1)[:, [-count]]
    above, equal = scores > lowest, scores == lowest
    selected = above | equal & (equal.cumsum(1) <= count - above.sum(1, keepdims=True))
    columns = np.nonzero(selected)[1].reshape(-1, count)
    order = np.argsort(-np.take_along_axis(scores, columns, 1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, 1)


def unit(vectors: Array, numpy: Any) -> Array:
    """Divides vectors [n, width] by their L2 norms.

    Args:
      numpy: the module of the array: numpy, or jax.numpy.
    """
    vectors = vectors.astype(np.float32)
    lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / numpy.maximum(lengths, 1e-12)


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
