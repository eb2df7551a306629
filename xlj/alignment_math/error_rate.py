"""Alignment error rate, precision, recall and F1 of links against a gold standard."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Link = tuple[int, int]
"""(source word, target word), from 0."""


class Scores(NamedTuple):
    """Each between 0 and 1; a quotient of nothing by nothing is 0."""

    aer: float
    precision: float
    recall: float
    f1: float


def score(
    predicted: Sequence[Iterable[Link]],
    sure: Sequence[Iterable[Link]],
    possible: Sequence[Iterable[Link]],
) -> Scores:
    """Scores of the links of a whole set of sentence pairs (Och and Ney, 2003).

    With the links A, the sure ones S and the possible ones P, which contain S, all counted over the
    set: AER = 1 - (|A & P| + |A & S|) / (|A| + |S|), precision = |A & P| / |A|, recall =
    |A & S| / |S|. A gold link that no prediction can meet, such as one outside its sentence, counts
    in |S| all the same; one that is written twice counts once, as in XLM-Align's released scorer.

    Raises:
      ValueError: if they are not equally many.
    """
    links = in_sure = in_possible = all_sure = 0
    for found, must, may in zip(predicted, sure, possible, strict=True):
        found, must = set(found), set(must)
        links += len(found)
        all_sure += len(must)
        in_sure += len(found & must)
        in_possible += len(found & (must | set(may)))
    precision, recall = _ratio(in_possible, links), _ratio(in_sure, all_sure)
    return Scores(
        aer=_ratio(links + all_sure - in_possible - in_sure, links + all_sure),
        precision=precision,
        recall=recall,
        f1=_ratio(2 * precision * recall, precision + recall),
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
