"""Accuracy of labels; of indices that were found, it is accuracy@1."""

from collections.abc import Sequence


def accuracy(predicted: Sequence, gold: Sequence) -> float:
    """The share of places where both are equal.

    Raises:
      ValueError: if they are not equally many, or none.
    """
    if not gold:
        raise ValueError("there is nothing to predict")
    return sum(a == b for a, b in zip(predicted, gold, strict=True)) / len(gold)
