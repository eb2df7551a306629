"""Computes correlations of predicted and gold scores, as for semantic textual similarity (STS)."""

from collections.abc import Sequence

import numpy as np


def pearson(predicted: Sequence[float], gold: Sequence[float]) -> float:
    """Computes Pearson's linear correlation, from -1 to 1.

    It is 0 if all predictions are equal, or if all gold scores are equal.

    Raises:
      ValueError: if the arguments differ in length, or have fewer than two scores.
    """
    if len(predicted) != len(gold) or len(gold) < 2:
        raise ValueError(
            f"{len(predicted)} predictions for {len(gold)} gold scores; expected equal numbers, at "
            "least 2"
        )
    first, second = (np.asarray(side, np.float64) - np.mean(side) for side in (predicted, gold))
    product = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / product if product > 0 else 0.0


def spearman(predicted: Sequence[float], gold: Sequence[float]) -> float:
    """Computes Spearman's correlation of ranks, from -1 to 1. Equal scores get their mean rank.

    Raises:
      ValueError: if the arguments differ in length, or have fewer than two scores.
    """
    return pearson(_ranks(predicted), _ranks(gold))


def _ranks(values: Sequence[float]) -> list[float]:
    _, which, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ranks: list[float] = (np.cumsum(counts) - (counts + 1) / 2)[which].tolist()
    return ranks
