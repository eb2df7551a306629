"""Accuracy."""

import pytest

from xlj.evaluation.metrics.shares import accuracy


def test_accuracy():
    assert accuracy(["a", "b", "a"], ["a", "a", "a"]) == pytest.approx(2 / 3)
    assert accuracy([3], [4]) == 0


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError):
        accuracy(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="gold is empty"):
        accuracy([], [])
