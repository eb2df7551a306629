"""Aligns the sentences of two documents, from coarse to fine.

Both documents are halved until they are short, by adding the vectors of neighbours. The shortest
documents are aligned with a full programme. Each longer version is aligned in a band around the
path of the version before. So time and memory are linear in the length of the documents. The last
version, the sentences, is aligned twice: the first path gives the parameters of the second.

Source: Thompson and Koehn (2019), "Vecalign: Improved sentence alignment in linear time and space".
The scores differ (see `evidence`).
"""

from typing import NamedTuple

import numpy as np

from xlj.document_alignment import evidence, programme
from xlj.document_alignment.blocks import SIZES, Blocks
from xlj.document_alignment.programme import Band, Path

SHORT = 200
"""Documents of at most this length are aligned with a full programme."""
RADIUS = 20
"""The number of rows and columns around a coarse path that a finer path may use."""
_COARSE_SIZES = 2
_PASSES = 2
_AT_MEDIAN = float(np.log(99))  # the logit of the confidence of a pair at the median


class Pair(NamedTuple):
    """A step of an alignment.

    Attributes:
      source, target: the ranges of sentences; one is empty if sentences have no counterpart.
      confidence: from 0 to 1; 0 without a counterpart. The likelihood ratio of the pair relative to
        the median of all pairs determines it: a pair at the median has 0.99, and a pair that is as
        likely random as a translation has 0.5.
    """

    source: range
    target: range
    confidence: float

    @property
    def kind(self) -> str:
        """The numbers of sentences, such as `1-2`."""
        return f"{len(self.source)}-{len(self.target)}"

    @property
    def is_gap(self) -> bool:
        """Whether the step has sentences of one side only."""
        return not (self.source and self.target)


def align(source: Blocks, target: Blocks) -> list[Pair]:
    """Aligns two documents.

    Returns:
      The steps in order. They cover each sentence once.
    """
    cells = band(source, target)
    parameters = evidence.first_estimate(source, target, SIZES)
    for number in range(_PASSES):
        scorer = evidence.Scorer(parameters, source, target)
        path = programme.best_path(scorer.scores, cells, SIZES, **parameters.gap_scores)
        if number < _PASSES - 1:
            parameters = evidence.estimate_again(parameters, source, target, path)
    return _steps(path, scorer)


def band(source: Blocks, target: Blocks) -> Band:
    """Returns the band in which two documents are aligned."""
    rows, columns = len(source), len(target)
    if max(rows, columns) <= SHORT or min(rows, columns) < 2:
        return programme.full(rows, columns)
    coarse = source.halved(), target.halved()
    wide = band(*coarse)
    parameters = evidence.first_estimate(*coarse, _COARSE_SIZES)
    scorer = evidence.Scorer(parameters, *coarse, with_lengths=False)
    path = programme.best_path(scorer.scores, wide, _COARSE_SIZES, **parameters.gap_scores)
    cells = np.minimum(2 * path.cells, (rows, columns))
    return programme.around(cells, RADIUS, rows, columns)


def _steps(path: Path, scorer: evidence.Scorer) -> list[Pair]:
    steps = list(zip(path.cells[:-1].tolist(), path.cells[1:].tolist(), strict=True))
    ratios = np.zeros(len(steps))
    is_pair = (path.sizes > 0).all(1)
    for number in np.flatnonzero(is_pair):
        (a, b), (i, j) = steps[number]
        ratios[number] = scorer.ratios(i, i + 1, j, j + 1)[0, i - a - 1, j - b - 1, 0]
    typical = max(float(np.median(ratios[is_pair])) if is_pair.any() else 1.0, 1e-9)
    confidences = is_pair / (1 + np.exp(-_AT_MEDIAN * np.clip(ratios / typical, -9, 9)))
    return [
        Pair(range(a, i), range(b, j), float(confidence))
        for ((a, b), (i, j)), confidence in zip(steps, confidences, strict=True)
    ]
