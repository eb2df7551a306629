"""Accuracy of labels; F1, precision and recall from counts."""

from collections.abc import Sequence
from typing import NamedTuple


def accuracy(predicted: Sequence, gold: Sequence) -> float:
    """The share of places where both are equal; of indices that were found, it is accuracy@1.

    Raises:
      ValueError: if they are not equally many, or none.
    """
    if not gold:
        raise ValueError("there is nothing to predict")
    return sum(a == b for a, b in zip(predicted, gold, strict=True)) / len(gold)


class Scores(NamedTuple):
    """Each between 0 and 1; a quotient of nothing by nothing is 0."""

    f1: float
    precision: float
    recall: float


def f1_scores(right: int, predicted: int, gold: int) -> Scores:
    """Scores of `predicted` things of which `right` are among the `gold` ones."""
    if not right:
        return Scores(0.0, 0.0, 0.0)
    precision, recall = right / predicted, right / gold
    return Scores(2 * precision * recall / (precision + recall), precision, recall)
