"""Bitext mining: finds the sentence pairs of two texts that are translations (BUCC).

Evaluation scores and the best threshold are computed in `evaluation.metrics.pairs`. Source: Artetxe
and Schwenk (2019), "Margin-based parallel corpus mining", with the ratio margin and the strategy
that they call "max. score".
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.io import atomic
from xlj.retrieval.nearest import Nearest, nearest


class Pairs(NamedTuple):
    """Pairs of a source and a target, best first; each sentence is in at most one pair.

    Attributes:
      sources: int64 [pairs].
      targets: int64 [pairs].
      scores: margins, float64 [pairs], falling.
    """

    sources: np.ndarray
    targets: np.ndarray
    scores: np.ndarray


def mine(source: np.ndarray, target: np.ndarray) -> Pairs:
    """Mines pairs by exact search (see `select_pairs`).

    Args:
      source, target: vectors [n, hidden] and [m, hidden] of distinct sentences.
    """
    return select_pairs(nearest(source, target, "margin"))


def select_pairs(best: Nearest) -> Pairs:
    """Pairs sentences with their best partners; a sentence that is in a better pair is not used
    again.

    Args:
      best: the best partner of each sentence by margin, in both directions.
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
    return Pairs(sources[selected], targets[selected], scores[selected].astype(np.float64))


def first_occurrences(texts: Sequence[str]) -> list[int]:
    """Returns the index of the first occurrence of each distinct sentence.

    Mining needs distinct sentences, because copies would be each other's rivals and neighbours.
    """
    first: dict[str, int] = {}
    for place, text in enumerate(texts):
        first.setdefault(text, place)
    return list(first.values())


def write(path: Path, pairs: Sequence[tuple[str, str]], scores: Sequence[float] | None) -> None:
    """Writes a line `source TAB target` per pair, with its score in a third column if given."""
    with atomic.writing(path) as file:
        for k, pair in enumerate(pairs):
            columns = pair if scores is None else (*pair, f"{scores[k]:.6f}")
            file.write(("\t".join(columns) + "\n").encode())
