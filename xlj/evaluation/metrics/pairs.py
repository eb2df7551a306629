"""Computes F1 of mined sentence pairs, and the threshold with the best F1 on a development set, as
in BUCC."""

from collections.abc import Hashable, Iterable

import numpy as np

from xlj.evaluation.metrics import shares


def pair_scores(predicted: Iterable[Hashable], gold: Iterable[Hashable]) -> shares.ShareScores:
    """Scores predicted pairs (usually pairs of ids) against gold pairs. Duplicates count once."""
    predicted_pairs, gold_pairs = set(predicted), set(gold)
    return shares.f1_scores(
        len(predicted_pairs & gold_pairs), len(predicted_pairs), len(gold_pairs)
    )


def best_threshold(scores: np.ndarray, is_gold: np.ndarray, gold: int) -> float:
    """Returns the threshold with the best F1 for selecting candidates by score.

    All candidates with at least this score are selected. The threshold is halfway between the
    lowest selected score and the next lower score, as in XTREME's script for BUCC. It is the lowest
    score if all candidates are selected. If several thresholds have the best F1, the highest is
    returned. If no candidate is a gold pair, the threshold is infinite.

    Unlike XTREME's script, this function never considers a cut between equal scores. (The script
    computes F1 for such a cut, but its threshold then selects all candidates with this score.)

    Args:
      scores: float [candidates], finite.
      is_gold: bool [candidates], whether each candidate is a gold pair.
      gold: the number of gold pairs, including gold pairs that are not candidates.

    Raises:
      ValueError: if the shapes differ, a score is not finite, or there are more gold candidates
        than gold pairs.
    """
    scores, is_gold = np.asarray(scores, np.float64), np.asarray(is_gold, bool)
    if scores.shape != is_gold.shape or scores.ndim != 1:
        raise ValueError(
            f"scores has shape {scores.shape} and is_gold {is_gold.shape}; expected [candidates]"
        )
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite; expected finite scores")
    if is_gold.sum() > gold:
        raise ValueError(
            f"{is_gold.sum()} candidates are gold pairs, but gold={gold}; expected at "
            "least as many gold pairs"
        )
    if not is_gold.any():
        return float("inf")
    order = np.argsort(-scores, kind="stable")
    scores, is_gold = scores[order], is_gold[order]
    # F1 = 2 correct / (selected + gold). A cut is possible only where the next score is lower.
    f1s = 2 * np.cumsum(is_gold) / (np.arange(1, len(scores) + 1) + gold)
    f1s[:-1][scores[:-1] == scores[1:]] = -1
    last = int(f1s.argmax())
    return float(scores[last:][:2].mean())
