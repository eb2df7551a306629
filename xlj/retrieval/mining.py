"""Mines bitext: finds pairs of sentences in two texts that are translations, as in BUCC.

`evaluation.metrics.pairs` computes F1 of mined pairs and the best threshold. Source: Artetxe and
Schwenk (2019), "Margin-based parallel corpus mining", with the ratio margin and the strategy "max.
score".
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.io import atomic
from xlj.retrieval.nearest import Nearest, nearest


class PairIndices(NamedTuple):
    """Mined pairs, best first. Each sentence is in at most one pair.

    Attributes:
      sources: int64 [pairs], indices of source sentences.
      targets: int64 [pairs], indices of target sentences.
      scores: float64 [pairs], margins, in descending order.
    """

    sources: np.ndarray
    targets: np.ndarray
    scores: np.ndarray


def mine(source: np.ndarray, target: np.ndarray) -> PairIndices:
    """Mines pairs: searches exactly, then selects pairs (`select_pairs`).

    Args:
      source, target: the vectors of distinct sentences, [n, hidden] and [m, hidden].
    """
    return select_pairs(nearest(source, target, "margin"))


def select_pairs(best: Nearest) -> PairIndices:
    """Selects pairs by margin, best first.

    A pair is skipped if an earlier selected pair contains one of its sentences.

    Args:
      best: for each sentence, the partner with the highest margin, in both directions.
    """
    sizes = len(best.targets.indices), len(best.sources.indices)
    sources = np.concatenate([np.arange(sizes[0]), best.sources.indices[:, 0]])
    targets = np.concatenate([best.targets.indices[:, 0], np.arange(sizes[1])])
    scores = np.concatenate([best.targets.scores[:, 0], best.sources.scores[:, 0]])
    selected, is_used = [], (np.zeros(sizes[0], bool), np.zeros(sizes[1], bool))
    for pair in np.argsort(-scores, kind="stable"):
        i, j = sources[pair], targets[pair]
        if not (is_used[0][i] or is_used[1][j]):
            is_used[0][i] = is_used[1][j] = True
            selected.append(pair)
    return PairIndices(sources[selected], targets[selected], scores[selected].astype(np.float64))


def first_occurrences(texts: Sequence[str]) -> list[int]:
    """Returns the index of the first occurrence of each distinct sentence.

    Mining needs distinct sentences, because copies of a sentence would compete for partners, and
    could take several places among the nearest neighbours of another sentence.
    """
    first: dict[str, int] = {}
    for place, text in enumerate(texts):
        first.setdefault(text, place)
    return list(first.values())


def write(path: Path, pairs: Sequence[tuple[str, str]], scores: Sequence[float] | None) -> None:
    """Writes a line `source TAB target` for each pair.

    Args:
      scores: the scores of the pairs for a third column; None for two columns.
    """
    with atomic.writing(path) as file:
        for k, pair in enumerate(pairs):
            columns = pair if scores is None else (*pair, f"{scores[k]:.6f}")
            file.write(("\t".join(columns) + "\n").encode())
