"""Sentence retrieval: whose vector is nearest. NumPy only, in bounded memory."""

from __future__ import annotations

import numpy as np
from tqdm import tqdm

SIMILARITIES = ("cosine", "margin")
"""Cosine; or the ratio margin of Artetxe and Schwenk (2019): cosine over the mean cosine of both
sentences with their nearest neighbours."""

NEIGHBOURS = 4
"""Nearest neighbours of the margin."""

_CELLS = 1 << 26  # similarities held at a time


def accuracy(source: np.ndarray, target: np.ndarray, similarity: str = "cosine") -> float:
    """The share of sources whose nearest target stands in the same line (Tatoeba's accuracy@1).

    Args:
      source, target: float [sentences, hidden], line by line.
    """
    return float((nearest(source, target, similarity) == np.arange(len(source))).mean())


def nearest(source: np.ndarray, target: np.ndarray, similarity: str = "cosine") -> np.ndarray:
    """The index of each source's nearest target, exactly; the first of equals. int64 [sources].

    Args:
      source, target: float [n, hidden] and [m, hidden].
      similarity: one of SIMILARITIES.
    """
    source, target = _unit(source), _unit(target)
    if similarity == "margin":
        of_source = _neighbourhoods(source, target)
        of_target = _neighbourhoods(target, source)
    found = np.empty(len(source), np.int64)
    for rows in _parts(len(source), len(target)):
        scores = source[rows] @ target.T
        if similarity == "margin":
            scores /= (of_source[rows, None] + of_target) / 2
        found[rows] = scores.argmax(1)
    return found


def _neighbourhoods(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The mean cosine of each source with its nearest targets, float32 [sources]."""
    count = min(NEIGHBOURS, len(target))
    means = np.empty(len(source), np.float32)
    for rows in _parts(len(source), len(target)):
        scores = source[rows] @ target.T
        means[rows] = np.partition(scores, -count, axis=1)[:, -count:].mean(1)
    return means


def _parts(rows: int, columns: int) -> tqdm:
    size = max(1, _CELLS // max(columns, 1))
    parts = [slice(start, start + size) for start in range(0, rows, size)]
    return tqdm(parts, desc="searching", disable=len(parts) < 8, leave=False)


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors, np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
