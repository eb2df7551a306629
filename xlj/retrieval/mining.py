"""Bitext mining: the pairs of two texts that translate each other (BUCC). Their scores and the
threshold are in `evaluation.metrics.pairs`.

Artetxe and Schwenk (2019), "Margin-based parallel corpus mining", with the ratio margin and the
strategy that they call max. score.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.io import atomic
from xlj.retrieval.nearest import Nearest, nearest


class Pairs(NamedTuple):
    """Pairs of a source and a target, best first; no sentence is in two of them."""

    sources: np.ndarray  # int64 [pairs]
    targets: np.ndarray  # int64 [pairs]
    scores: np.ndarray  # their margins, float64 [pairs], falling


def mine(source: np.ndarray, target: np.ndarray) -> Pairs:
    """Pairs of each sentence with its best partner, without those that a better pair has taken, of
    the vectors [n, hidden] and [m, hidden] of distinct sentences."""
    return chosen(nearest(source, target, "margin"))


def chosen(found: Nearest) -> Pairs:
    """Pairs of each sentence with its best partner, without those that a better pair has taken, of
    the best partners by margin, in both directions."""
    sizes = len(found.targets.indices), len(found.sources.indices)
    sources = np.concatenate([np.arange(sizes[0]), found.sources.indices[:, 0]])
    targets = np.concatenate([found.targets.indices[:, 0], np.arange(sizes[1])])
    scores = np.concatenate([found.targets.scores[:, 0], found.sources.scores[:, 0]])
    kept, seen = [], (np.zeros(sizes[0], bool), np.zeros(sizes[1], bool))
    for pair in np.argsort(-scores, kind="stable"):
        i, j = sources[pair], targets[pair]
        if not (seen[0][i] or seen[1][j]):
            seen[0][i] = seen[1][j] = True
            kept.append(pair)
    return Pairs(sources[kept], targets[kept], scores[kept].astype(np.float64))


def distinct(texts: Sequence[str]) -> list[int]:
    """Where each sentence stands first. Copies would be each other's rivals and neighbours."""
    first: dict[str, int] = {}
    for place, text in enumerate(texts):
        first.setdefault(text, place)
    return list(first.values())


def write(path: Path, pairs: Sequence[tuple[str, str]], scores: Sequence[float] | None) -> None:
    """Writes a line `source TAB target` a pair, with its score as a third column if given."""
    with atomic.writing(path) as file:
        for k, pair in enumerate(pairs):
            columns = pair if scores is None else (*pair, f"{scores[k]:.6f}")
            file.write(("\t".join(columns) + "\n").encode())
