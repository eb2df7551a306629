"""F1 of mined sentence pairs, and the threshold with the best F1 on a development set (BUCC)."""

from collections.abc import Hashable, Iterable

import numpy as np

from xlj.evaluation.metrics import shares


def pair_scores(predicted: Iterable[Hashable], gold: Iterable[Hashable]) -> shares.Scores:
    """Scores predicted pairs (usually of ids) against the gold pairs; duplicates count once."""
    guesses, true = set(predicted), set(gold)
    return shares.f1_scores(len(guesses & true), len(guesses), len(true))


def best_threshold(scores: np.ndarray, is_gold: np.ndarray, gold: int) -> float:
    """Returns the threshold with the best F1, if candidates with at least this score are selected.

    It is halfway between the last selected score and the next one (as XTREME does for BUCC), or the
    last score if all are selected. Equal scores are selected together (ours; XTREME's script cuts
    between them, and then selects them all). The highest of equally good thresholds is returned. If
    no candidate is a gold pair, the threshold is infinite.

    Args:
      scores: float [candidates], finite.
      is_gold: bool [candidates], whether each candidate is a gold pair.
      gold: the number of gold pairs, including those that are no candidates.

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
        raise ValueError("a score is not finite")
    if is_gold.sum() > gold:
        raise ValueError(f"{is_gold.sum()} candidates are gold pairs, but gold={gold}")
    if not is_gold.any():
        return float("inf")
    order = np.argsort(-scores, kind="stable")
    scores, is_gold = scores[order], is_gold[order]
    # F1 = 2 correct / (selected + gold), where the score after the last selected one is lower.
    f1s = 2 * np.cumsum(is_gold) / (np.arange(1, len(scores) + 1) + gold)
    f1s[:-1][scores[:-1] == scores[1:]] = -1
    last = int(f1s.argmax())
    return float(scores[last:][:2].mean())
