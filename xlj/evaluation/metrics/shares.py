"""Computes the accuracy of labels, and F1, precision and recall from counts."""

from collections.abc import Sequence
from typing import NamedTuple


def accuracy(predicted: Sequence, gold: Sequence) -> float:
    """Returns the share of predictions that equal the gold item at the same index.

    For indices of retrieved sentences, this is accuracy@1.

    Raises:
      ValueError: if the arguments differ in length or are empty.
    """
    if not gold:
        raise ValueError("gold is empty; expected at least one item")
    return sum(a == b for a, b in zip(predicted, gold, strict=True)) / len(gold)


class ShareScores(NamedTuple):
    """F1, precision and recall, between 0 and 1. 0 / 0 is 0."""

    f1: float
    precision: float
    recall: float


def f1_scores(correct: int, predicted: int, gold: int) -> ShareScores:
    """Computes F1, precision and recall from the numbers of correct, predicted and gold items."""
    if not correct:
        return ShareScores(0.0, 0.0, 0.0)
    precision, recall = correct / predicted, correct / gold
    return ShareScores(2 * precision * recall / (precision + recall), precision, recall)
