"""Correlations of predicted and right scores, as of semantic textual similarity (STS)."""

from collections.abc import Sequence

import numpy as np


def pearson(predicted: Sequence[float], right: Sequence[float]) -> float:
    """The linear correlation, from -1 to 1; 0 where either side is constant.

    Raises:
      ValueError: if there are not as many of both, or fewer than two.
    """
    if len(predicted) != len(right) or len(right) < 2:
        raise ValueError(f"{len(predicted)} predictions of {len(right)} scores, of at least 2")
    first, second = (np.asarray(side, np.float64) - np.mean(side) for side in (predicted, right))
    product = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / product if product > 0 else 0.0


def spearman(predicted: Sequence[float], right: Sequence[float]) -> float:
    """The correlation of ranks, where equals share the mean of theirs; raises as `pearson`."""
    return pearson(_ranks(predicted), _ranks(right))


def _ranks(values: Sequence[float]) -> list[float]:
    _, which, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ranks: list[float] = (np.cumsum(counts) - (counts + 1) / 2)[which].tolist()
    return ranks
