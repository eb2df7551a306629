"""Alignment error rate, precision, recall and F1 of links against a gold standard."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Link = tuple[int, int]
"""A link: (index of the source word, index of the target word), zero-based."""


class AlignmentScores(NamedTuple):
    """Scores between 0 and 1. A score that would be 0 divided by 0 is 0."""

    aer: float
    precision: float
    recall: float
    f1: float


def score(
    predicted: Sequence[Iterable[Link]],
    sure: Sequence[Iterable[Link]],
    possible: Sequence[Iterable[Link]],
) -> AlignmentScores:
    """Scores the links of a set of sentence pairs against gold links (Och and Ney, 2003).

    Let A be the predicted links, S the sure gold links, and P the possible gold links, which
    include S. With counts over the whole set:

    - AER = 1 - (|A & P| + |A & S|) / (|A| + |S|)
    - precision = |A & P| / |A|
    - recall = |A & S| / |S|
    - F1 is the harmonic mean of precision and recall.

    As in XLM-Align's released scorer, |S| includes gold links that no prediction can match, such as
    links outside a sentence. Repeated links of a pair count once.

    Args:
      predicted, sure, possible: the links of each sentence pair. `possible` need not repeat the
        sure links.

    Raises:
      ValueError: if the arguments have different lengths.
    """
    links = in_sure = in_possible = all_sure = 0
    for of_pair, sure_links, possible_links in zip(predicted, sure, possible, strict=True):
        of_pair, sure_links = set(of_pair), set(sure_links)
        links += len(of_pair)
        all_sure += len(sure_links)
        in_sure += len(of_pair & sure_links)
        in_possible += len(of_pair & (sure_links | set(possible_links)))
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
