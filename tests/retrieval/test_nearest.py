"""Nearest neighbours in both directions, and how often they are translations."""

import numpy as np
import pytest

from xlj.config.choices import SIMILARITIES
from xlj.retrieval import search


def vectors(seed, count, width=8):
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("targets", [17, 3])
def test_nearest_equals_a_plain_search(similarity, targets):
    source, target = vectors(0, 23) + 1, vectors(1, targets) + 1
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (source, target)]
    scores = unit[0] @ unit[1].T
    if similarity == "margin":
        rows = np.sort(scores, axis=1)[:, -4:].mean(1)
        columns = np.sort(scores, axis=0)[-4:].mean(0)
        scores = scores / ((rows[:, None] + columns) / 2)
    result = search.nearest(source, target, similarity)
    np.testing.assert_array_equal(result.targets.indices[:, 0], scores.argmax(1))
    np.testing.assert_array_equal(result.sources.indices[:, 0], scores.argmax(0))
    np.testing.assert_allclose(result.targets.scores[:, 0], scores.max(1), rtol=1e-5)


def test_margins_avoid_a_sentence_that_is_near_to_all_others():
    """By cosine, a hub is nearest to both sources; by margin, each has a different neighbour."""
    source = np.eye(3)[:2] + [0.0, 0.0, 0.8]
    target = np.array([[1, 0, -0.2], [0, 1, -0.2], [0.5, 0.5, 1]])
    results = {name: search.nearest(source, target, name) for name in SIMILARITIES}
    np.testing.assert_array_equal(results["cosine"].targets.indices[:, 0], [2, 2])
    np.testing.assert_array_equal(results["margin"].targets.indices[:, 0], [0, 1])


def test_centring_removes_a_shift_that_the_vectors_of_a_language_share():
    source = vectors(6, 40)
    target = source + np.float32([9, 0, 0, 0, 0, 0, 0, 0]) * vectors(7, 40)[:, :1].clip(0.5)
    before = search.accuracy(search.nearest(source, target))
    layers = np.stack([source, target])
    search.centre(layers)
    np.testing.assert_allclose(layers.mean(1), 0, atol=1e-6)
    after = search.accuracy(search.nearest(*layers))
    assert min(after) > max(before) + 0.2


def test_accuracy_is_the_share_of_lines_with_the_right_neighbour():
    source = vectors(2, 10)
    assert search.accuracy(search.nearest(source, 3 * source)) == (1.0, 1.0)
    swapped = source[[1, 0, *range(2, 10)]]
    assert search.accuracy(search.nearest(source, swapped)) == (0.8, 0.8)


def test_accuracy_of_targets_in_another_order_as_in_xtreme():
    source, order = vectors(3, 10), np.random.default_rng(4).permutation(10)
    result = search.nearest(source, source[order])
    assert search.accuracy(result, order) == (1.0, 1.0)
    wrong = order.copy()
    wrong[:2] = order[1::-1]
    assert search.accuracy(result, wrong) == (0.8, 0.8)


def test_accuracy_if_some_sources_have_no_translation():
    source = vectors(5, 10)
    result = search.nearest(source, source[[7, 2]])
    assert search.accuracy(result, np.array([7, 2])) == (1.0, 1.0)
    assert search.accuracy(result, np.array([7, 3])).target_to_source == 0.5
