"""Bitext mining: the pairs of two texts that translate each other (BUCC). Their scores and the
threshold are in `metrics.pairs`.

Artetxe and Schwenk (2019), "Margin-based parallel corpus mining", with the ratio margin and the
strategy that they call max. score.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xlj.retrieval.nearest import nearest


class Pairs(NamedTuple):
    """Pairs of a source and a target, best first; no sentence is in two of them."""

    sources: np.ndarray
    """int64 [pairs]"""
    targets: np.ndarray
    """int64 [pairs]"""
    scores: np.ndarray
    """Their margins, float64 [pairs], falling."""


def mine(source: np.ndarray, target: np.ndarray) -> Pairs:
    """Pairs of each sentence with its best partner, without those that a better pair has taken.

    Args:
      source, target: float [n, hidden] and [m, hidden], of distinct sentences.
    """
    found = nearest(source, target, "margin")
    sources = np.concatenate([np.arange(len(source)), found.sources.indices[:, 0]])
    targets = np.concatenate([found.targets.indices[:, 0], np.arange(len(target))])
    scores = np.concatenate([found.targets.scores[:, 0], found.sources.scores[:, 0]])
    kept, seen = [], (np.zeros(len(source), bool), np.zeros(len(target), bool))
    for pair in np.argsort(-scores, kind="stable"):
        i, j = sources[pair], targets[pair]
        if not (seen[0][i] or seen[1][j]):
            seen[0][i] = seen[1][j] = True
            kept.append(pair)
    return Pairs(sources[kept], targets[kept], scores[kept].astype(np.float64))
