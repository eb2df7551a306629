"""Sentence retrieval: whose translation is whose, by nearest neighbours in both directions."""

from typing import NamedTuple

import numpy as np

from xlj.config.choices import SIMILARITIES, check_choice
from xlj.retrieval.search import Neighbours, neighbours

NEIGHBOURS = 4
"""Of a sentence, whose mean cosine the margin divides by."""


class Nearest(NamedTuple):
    """The best partner of each sentence among all of the other side."""

    targets: Neighbours  # of each source, arrays [sources, 1]
    sources: Neighbours  # of each target, arrays [targets, 1]


class Accuracy(NamedTuple):
    """Shares of sentences whose nearest neighbour is their translation (accuracy@1), 0 to 1."""

    source_to_target: float
    target_to_source: float


def centre(vectors: np.ndarray) -> None:
    """Moves the vectors of one language, float32 [..., n, hidden], to a mean of 0, in place
    (Libovický et al., 2020, "On the Language Neutrality of Pre-trained Multilingual
    Representations")."""
    vectors -= vectors.mean(-2, dtype=np.float64, keepdims=True).astype(vectors.dtype)


def nearest(source: np.ndarray, target: np.ndarray, similarity: str = "cosine") -> Nearest:
    """The nearest neighbours in both directions, exactly; the first of equals.

    Args:
      source, target: float [n, hidden] and [m, hidden].
      similarity: one of `choices.SIMILARITIES`; a `ConfigError` if it is not.
    """
    check_choice("similarity", similarity, SIMILARITIES)
    if similarity == "cosine":
        return Nearest(neighbours(source, target), neighbours(target, source))
    dense = _density(source, target), _density(target, source)
    found = neighbours(source, target, densities=dense)
    return Nearest(found, neighbours(target, source, densities=dense[::-1]))


def accuracy(found: Nearest, translations: np.ndarray | None = None) -> Accuracy:
    """How often the nearest sentence is the translation.

    Args:
      translations: int [targets], the source that each target translates; None if they stand in
        the same lines. A source without a target is only there to be mistaken for another.
    """
    lines = np.arange(len(found.sources.indices))
    wanted = lines if translations is None else translations
    return Accuracy(
        float((found.targets.indices[wanted, 0] == lines).mean()),
        float((found.sources.indices[:, 0] == wanted).mean()),
    )


def _density(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The mean cosine of each source with its nearest targets, float32 [sources]."""
    return neighbours(source, target, NEIGHBOURS).scores.mean(1)
