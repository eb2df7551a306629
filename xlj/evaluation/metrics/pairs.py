"""F1 of mined sentence pairs, and the threshold that makes it best on a development set (BUCC)."""

from collections.abc import Hashable, Iterable

import numpy as np

from xlj.evaluation.metrics import shares


def pair_scores(predicted: Iterable[Hashable], gold: Iterable[Hashable]) -> shares.Scores:
    """Scores of pairs (of ids, usually) against the gold ones; one that is listed twice counts
    once."""
    found, true = set(predicted), set(gold)
    return shares.f1_scores(len(found & true), len(found), len(true))


def best_threshold(scores: np.ndarray, right: np.ndarray, gold: int) -> float:
    """The threshold that gives the best F1, if candidates that score at least as much are kept.

    It lies halfway between the last score that is kept and the next one (BUCC as XTREME does it),
    and at the last score if all are kept. Equal scores are kept or left together (ours; XTREME's
    script cuts between them, and then keeps them all). The highest of equally good thresholds wins;
    if no candidate is right, it is infinite, and nothing is kept.

    Args:
      scores: float [candidates], finite.
      right: bool [candidates], whether each is a gold pair.
      gold: how many gold pairs there are, found or not.

    Raises:
      ValueError: if the shapes differ, a score is not finite, or more are right than there are.
    """
    scores, right = np.asarray(scores, np.float64), np.asarray(right, bool)
    if scores.shape != right.shape or scores.ndim != 1:
        raise ValueError(f"scores {scores.shape} and right {right.shape} must be lists of one size")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite")
    if right.sum() > gold:
        raise ValueError(f"{right.sum()} candidates are right, but there are {gold} gold pairs")
    if not right.any():
        return float("inf")
    order = np.argsort(-scores, kind="stable")
    scores, right = scores[order], right[order]
    # F1 = 2 right / (kept + gold), where the score after the last kept one is lower.
    f1s = 2 * np.cumsum(right) / (np.arange(1, len(scores) + 1) + gold)
    f1s[:-1][scores[:-1] == scores[1:]] = -1
    last = int(f1s.argmax())
    return float(scores[last:][:2].mean())
