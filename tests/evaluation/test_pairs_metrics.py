"""F1 of mined pairs, and the best threshold compared with all other thresholds."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xlj.evaluation.metrics import best_threshold, pair_scores


def test_pair_scores_equal_values_by_hand():
    gold = [("de-1", "en-1"), ("de-2", "en-2"), ("de-3", "en-3"), ("de-4", "en-4")]
    predicted = [("de-1", "en-1"), ("de-1", "en-1"), ("en-2", "de-2")]
    assert pair_scores(predicted, gold) == pytest.approx((1 / 3, 1 / 2, 1 / 4))
    assert pair_scores([], gold) == (0, 0, 0)


def test_the_best_threshold_is_halfway_between_two_scores():
    is_gold = [True, True, False, True, False]
    assert best_threshold(np.array([0.9, 0.8, 0.4, 0.3, 0.1]), is_gold, 2 + 1) == pytest.approx(0.2)
    assert best_threshold(np.array([0.9, 0.8, 0.4, 0.3, 0.1]), is_gold, 9) == pytest.approx(0.2)
    assert best_threshold(np.array([0.9, 0.8, 0.4]), is_gold[:3], 2) == pytest.approx(0.6)
    assert best_threshold(np.array([0.9, 0.8]), is_gold[:2], 2) == 0.8  # all are selected
    assert best_threshold(np.array([0.9]), [False], 2) == float("inf")
    assert best_threshold(np.array([]), [], 2) == float("inf")


SCORES = st.integers(0, 5).map(lambda n: n / 4) | st.floats(-1, 1, width=16)


@settings(max_examples=300)
@given(st.lists(st.tuples(SCORES, st.booleans()), max_size=12), st.integers(0, 3))
@example(
    [(0.5, True), (0.25, True), *[(0.25, False)] * 3], 0
)  # no threshold separates equal scores
def test_no_other_threshold_is_better(candidates, missed):
    scores, is_gold = np.array(candidates).reshape(-1, 2).T
    gold = {place for place in range(len(scores)) if is_gold[place]}
    gold |= {-1 - n for n in range(missed)}
    result = best_threshold(scores, is_gold, len(gold))
    selected = [place for place in range(len(scores)) if scores[place] >= result]
    best = pair_scores(selected, gold).f1
    assert (best > 0) == bool(is_gold.any())
    for threshold in scores:
        others = [place for place in range(len(scores)) if scores[place] >= threshold]
        value = pair_scores(others, gold).f1
        assert value < best + 1e-12
        assert len(others) >= len(selected) or value < best - 1e-12


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match=r"scores has shape \(2,\) and is_gold \(3,\)"):
        best_threshold(np.zeros(2), np.zeros(3, bool), 1)
    with pytest.raises(ValueError, match="not finite"):
        best_threshold(np.array([np.nan]), [True], 1)
    with pytest.raises(ValueError, match="2 candidates are gold pairs, but gold=1"):
        best_threshold(np.array([1.0, 2.0]), [True, True], 1)
