"""Reference implementation of the cross-entropy of masked tokens, and of the scales of losses."""

import numpy as np


def log_sum_exp(x):
    return x.max() + np.log(np.exp(x - x.max()).sum())


def softplus(x):
    return np.logaddexp(0, x)


def of_masked(logits, masked):
    """Cross-entropy of masked tokens: sums, counts and correct predictions, [rows] each.

    Args:
      logits: [rows, length, vocabulary].
      masked: arrays `positions`, `labels` and `weights`, [rows, slots] each.
    """
    totals = np.zeros((3, len(logits)))
    for row in range(len(logits)):
        slots = zip(masked.positions[row], masked.labels[row], masked.weights[row], strict=True)
        for at, label, weight in slots:
            if weight:
                scores = logits[row, at]
                totals[:, row] += log_sum_exp(scores) - scores[label], 1, scores.argmax() == label
    return totals


def scales(normalisation, weights, counts):
    """The factor of each summed loss: its weight divided by a number of predictions, at least 1.

    With `per_objective` it is the number of the objective, otherwise that of all objectives.
    """
    all_counts = sum(counts[name] for name, weight in weights.items() if weight > 0)
    return {
        name: weight / max(1, counts[name] if normalisation == "per_objective" else all_counts)
        for name, weight in weights.items()
    }
