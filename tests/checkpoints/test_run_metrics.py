"""Scores choose the best checkpoint and the last step of a run."""

import math

import pytest

from xlj.checkpoints import metrics


def test_scores_are_the_values_of_the_metric_after_step_0():
    lines = [
        {"step": 0, "eval/x": 9.0},
        {"step": 2, "eval/x": 0.25},
        {"step": 3, "train/loss": 1.0},
        {"step": 4, "eval/x": math.nan},
        {"step": 6, "eval/x": 1},
        {"step": 8, "eval/x": None},
        {"step": 10, "eval/x": "1"},
    ]
    assert metrics.scores(lines, "eval/x") == {2: 0.25, 4: -math.inf, 6: 1.0}
    assert metrics.scores(lines, "-eval/x") == {2: -0.25, 4: -math.inf, 6: -1.0}
    assert metrics.scores(lines, "") == metrics.scores(lines, "eval/y") == {}


def test_the_best_step_has_the_highest_score_and_is_the_latest_of_equal_ones():
    by_step = {2: 0.5, 4: 0.75, 6: 0.75, 8: -math.inf, 10: 0.9}
    assert metrics.rank(by_step, [2, 3, 4, 6, 8]) == [6, 4, 2, 8]
    assert metrics.rank(by_step, []) == []


@pytest.mark.parametrize(
    "values, patience, begin, last",
    [
        ([1, 2, 3, 4], 1, 0, 100),
        ([1, 2, 1, 3, 2, 1], 2, 0, 12),
        ([1, 2, 1, 3, 2, 1], 1, 0, 6),
        ([1, 2, 1, 3, 2, 1], 0, 0, 100),
        ([1, 1, 1, 2], 2, 0, 6),  # an equal score is not better
        ([3, 2, 1], 2, 0, 6),
        ([3, 1, 2, 3], 2, 0, 6),
        ([3, 2, 1], 3, 0, 100),
        ([3, 2, 1, 0], 2, 2, 8),  # the score of step 2 belongs to the phase that ends there
        ([3, 2, 1, 0], 2, 6, 100),
        ([-math.inf, -math.inf, 1], 2, 0, 4),
        ([-math.inf, 1, 2], 2, 0, 100),
        ([], 1, 0, 100),
    ],
)
def test_a_run_ends_if_the_score_has_not_risen_in_so_many_evaluations(
    values, patience, begin, last
):
    config = {
        "train": {"steps": 100, "patience": patience},
        "phases": {"late": {"start_step": begin}, "early": {"start_step": begin // 2}},
    }
    by_step = {2 * number: value for number, value in enumerate(values, 1)}
    assert metrics.last_step(config, dict(reversed(by_step.items()))) == last
