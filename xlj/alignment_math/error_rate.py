"""Alignment error rate, precision, recall and F1 of links against a gold standard."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Link = tuple[int, int]
"""(source word, target word), from 0."""


class Scores(NamedTuple):
    """Scores between 0 and 1; 0 divided by 0 counts as 0."""

    aer: float
    precision: float
    recall: float
    f1: float


def score(
    predicted: Sequence[Iterable[Link]],
    sure: Sequence[Iterable[Link]],
    possible: Sequence[Iterable[Link]],
) -> Scores:
    """Scores the links of a set of sentence pairs against gold links (Och and Ney, 2003).

    With links A, sure gold links S and possible gold links P, which include S, counted over the
    whole set: AER = 1 - (|A & P| + |A & S|) / (|A| + |S|), precision = |A & P| / |A|, recall =
    |A & S| / |S|. Gold links that no prediction can match, such as links outside a sentence, count
    in |S| too. Repeated gold links count once. Both are as in XLM-Align's released scorer.

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
    return Scores(
        aer=_ratio(links + all_sure - in_possible - in_sure, links + all_sure),
        precision=precision,
        recall=recall,
        f1=_ratio(2 * precision * recall, precision + recall),
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
