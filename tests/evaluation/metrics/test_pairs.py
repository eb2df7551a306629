"""F1 of mined pairs, and the best threshold against trying them all."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xlj.evaluation.metrics.pairs import best_threshold, pair_scores


def test_pair_scores_by_hand():
    gold = [("de-1", "en-1"), ("de-2", "en-2"), ("de-3", "en-3"), ("de-4", "en-4")]
    found = [("de-1", "en-1"), ("de-1", "en-1"), ("en-2", "de-2")]
    assert pair_scores(found, gold) == pytest.approx((1 / 3, 1 / 2, 1 / 4))
    assert pair_scores([], gold) == (0, 0, 0)


def test_the_threshold_lies_halfway():
    right = [True, True, False, True, False]
    assert best_threshold(np.array([0.9, 0.8, 0.4, 0.3, 0.1]), right, 2 + 1) == pytest.approx(0.2)
    assert best_threshold(np.array([0.9, 0.8, 0.4, 0.3, 0.1]), right, 9) == pytest.approx(0.2)
    assert best_threshold(np.array([0.9, 0.8, 0.4]), right[:3], 2) == pytest.approx(0.6)
    assert best_threshold(np.array([0.9, 0.8]), right[:2], 2) == 0.8  # all are kept
    assert best_threshold(np.array([0.9]), [False], 2) == float("inf")
    assert best_threshold(np.array([]), [], 2) == float("inf")


SCORES = st.integers(0, 5).map(lambda n: n / 4) | st.floats(-1, 1, width=16)


@settings(max_examples=300)
@given(st.lists(st.tuples(SCORES, st.booleans()), max_size=12), st.integers(0, 3))
@example([(0.5, True), (0.25, True), *[(0.25, False)] * 3], 0)  # a cut between equals is none
def test_no_other_threshold_is_better(candidates, missed):
    scores, right = np.array(candidates).reshape(-1, 2).T
    gold = {place for place in range(len(scores)) if right[place]}
    gold |= {-1 - n for n in range(missed)}
    found = best_threshold(scores, right, len(gold))
    kept = [place for place in range(len(scores)) if scores[place] >= found]
    best = pair_scores(kept, gold).f1
    assert (best > 0) == bool(right.any())
    for threshold in scores:
        others = [place for place in range(len(scores)) if scores[place] >= threshold]
        value = pair_scores(others, gold).f1
        assert value < best + 1e-12
        assert len(others) >= len(kept) or value < best - 1e-12


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="one size"):
        best_threshold(np.zeros(2), np.zeros(3, bool), 1)
    with pytest.raises(ValueError, match="not finite"):
        best_threshold(np.array([np.nan]), [True], 1)
    with pytest.raises(ValueError, match="2 candidates are right, but there are 1"):
        best_threshold(np.array([1.0, 2.0]), [True, True], 1)
