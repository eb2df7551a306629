"""Retrieves translations: finds the nearest neighbours of sentences in both directions."""

from typing import NamedTuple

import numpy as np

from xlj.config.choices import SIMILARITIES
from xlj.config.fields import check_choice
from xlj.retrieval.search import Neighbours, neighbours

NEIGHBOURS = 4
"""Margins use the mean cosine with this number of nearest neighbours."""


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
    densities = _density(source, target), _density(target, source)
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


def _density(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Computes the mean cosine of each source with the four nearest targets, float32 [sources]."""
    return neighbours(source, target, NEIGHBOURS).scores.mean(1)
