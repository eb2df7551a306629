"""Exact search, by cosine and by margin, whatever fits into memory at a time."""

import numpy as np
import pytest

from xlj.downstream import retrieval


def vectors(seed, count, width=8):
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


@pytest.mark.parametrize("similarity", retrieval.SIMILARITIES)
@pytest.mark.parametrize("cells", [1, 50, 1 << 20])
def test_nearest_equals_a_plain_search(similarity, cells, monkeypatch):
    monkeypatch.setattr(retrieval, "_CELLS", cells)
    source, target = vectors(0, 23), vectors(1, 17)
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (source, target)]
    cosines = unit[0] @ unit[1].T
    if similarity == "margin":
        rows = np.sort(cosines, axis=1)[:, -4:].mean(1)
        columns = np.sort(cosines, axis=0)[-4:].mean(0)
        cosines = cosines / ((rows[:, None] + columns) / 2)
    np.testing.assert_array_equal(retrieval.nearest(source, target, similarity), cosines.argmax(1))


def test_accuracy_counts_the_right_lines():
    source = vectors(2, 10)
    assert retrieval.accuracy(source, 3 * source) == 1.0
    swapped = source[[1, 0, *range(2, 10)]]
    assert retrieval.accuracy(source, swapped) == 0.8
