"""Accuracy is the share of equal labels; invalid lists are refused."""

import pytest

from xlj.evaluation.metrics.shares import accuracy


def test_accuracy_is_the_share_of_equal_labels():
    assert accuracy(["a", "b", "a"], ["a", "a", "a"]) == pytest.approx(2 / 3)
    assert accuracy([3], [4]) == 0


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError):
        accuracy(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="gold is empty"):
        accuracy([], [])
