"""Alignment error rate, precision, recall and F1 of links against a gold standard."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

Link = tuple[int, int]
"""A link: (index of the source word, index of the target word), zero-based."""


class AlignmentScores(NamedTuple):
    """Scores between 0 and 1. A score that would be 0 divided by 0 is 0."""

    aer: float
    precision: float
    recall: float
    f1: float


def count(
    predicted: Sequence[Iterable[Link]],
    sure: Sequence[Iterable[Link]],
    possible: Sequence[Iterable[Link]],
) -> np.ndarray:
    """Counts the links of each sentence pair.

    Let A be the predicted links, S the sure gold links, and P the possible gold links, which
    include S. As in XLM-Align's released scorer, |S| includes gold links that no prediction can
    match, such as links outside a sentence. Repeated links of a pair count once.

    Args:
      predicted, sure, possible: the links of each sentence pair. `possible` need not repeat the
        sure links.

    Returns:
      |A|, |S|, |A & P| and |A & S| of each pair, int64 [pairs, 4].

    Raises:
      ValueError: if the arguments have different lengths.
    """
    counts = []
    for of_pair, sure_links, possible_links in zip(predicted, sure, possible, strict=True):
        links, in_sure = set(of_pair), set(sure_links)
        in_possible = links & (in_sure | set(possible_links))
        counts.append([len(links), len(in_sure), len(in_possible), len(links & in_sure)])
    return np.array(counts, np.int64).reshape(-1, 4)


def score(
    predicted: Sequence[Iterable[Link]],
    sure: Sequence[Iterable[Link]],
    possible: Sequence[Iterable[Link]],
) -> AlignmentScores:
    """Scores the links of a set of sentence pairs against gold links.

    The arguments and errors are those of `count`.
    """
    return from_counts(*count(predicted, sure, possible).sum(0).tolist())


def from_counts(
    links: float, all_sure: float, in_possible: float, in_sure: float
) -> AlignmentScores:
    """Computes scores from the sums of the columns of `count` (Och and Ney, 2003).

    - AER = 1 - (|A & P| + |A & S|) / (|A| + |S|)
    - precision = |A & P| / |A|
    - recall = |A & S| / |S|
    - F1 is the harmonic mean of precision and recall.
    """
    precision, recall = _ratio(in_possible, links), _ratio(in_sure, all_sure)
    return AlignmentScores(
        aer=_ratio(links + all_sure - in_possible - in_sure, links + all_sure),
        precision=precision,
        recall=recall,
        f1=_ratio(2 * precision * recall, precision + recall),
    )


def _ratio(part: float, whole: float) -> float:
    """Returns part / whole, or 0 if `whole` is 0."""
    return part / whole if whole else 0.0
