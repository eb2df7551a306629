"""Sums, counts and right predictions of each row, and how a step scales the sums."""

import numpy as np


def log_sum_exp(x):
    return x.max() + np.log(np.exp(x - x.max()).sum())


def softplus(x):
    return np.logaddexp(0, x)


def of_masked(logits, masked):
    """Cross-entropy at the predicted positions: [rows] each of sums, counts and correct.

    Args:
      logits: [rows, length, vocabulary].
      masked: arrays `positions`, `labels` and `weights`, [rows, slots] each.
    """
    found = np.zeros((3, len(logits)))
    for row in range(len(logits)):
        slots = zip(masked.positions[row], masked.labels[row], masked.weights[row], strict=True)
        for at, label, weight in slots:
            if weight:
                scores = logits[row, at]
                found[:, row] += log_sum_exp(scores) - scores[label], 1, scores.argmax() == label
    return found


def scales(normalisation, weights, counts):
    """The factor of each summed loss; one that predicts nothing counts as one prediction."""
    together = sum(counts[name] for name, weight in weights.items() if weight > 0)
    return {
        name: weight / max(1, counts[name] if normalisation == "per_objective" else together)
        for name, weight in weights.items()
    }
