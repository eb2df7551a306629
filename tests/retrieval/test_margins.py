"""Ratio margins equal NumPy, with neighbours from the distinct sentences of each side."""

import numpy as np

from xlj.retrieval import margins
from xlj.retrieval.margins import Vectors


def plain_margins(source, target, sources, targets):
    """Computes margins in float64; `sources` and `targets` index the possible neighbours."""
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in map(np.float64, (source, target))]
    cosines = unit[0] @ unit[1].T
    of_sources = np.sort(cosines[:, targets], axis=1)[:, -4:].mean(1)
    of_targets = np.sort(cosines[sources], axis=0)[-4:].mean(0)
    return np.diagonal(cosines) / ((of_sources + of_targets) / 2)


def test_each_side_has_its_own_distinct_sentences():
    """The sides repeat different sentences, so exchanged indices give other neighbours."""
    source, target = np.random.default_rng(0).normal(1.5, 1, (2, 8, 5)).astype(np.float32)
    source[6], target[3], target[5] = source[1], target[0], target[0]
    sources, targets = np.array([0, 1, 2, 3, 4, 5, 7]), np.array([0, 1, 2, 4, 6, 7])
    sides = [Vectors([v[:4], v[4:4], v[4:]]) for v in (source, target)]
    result = margins.ratio(*sides, sources, targets)
    assert result.dtype == np.float32
    expected = plain_margins(source, target, sources, targets)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    exchanged = plain_margins(source, target, targets, sources)
    assert not np.isclose(exchanged, expected, rtol=1e-3).any()


def test_a_negative_density_is_replaced_by_a_small_divisor():
    one, opposite = (Vectors([np.array([[x, 0]], np.float32)]) for x in (3, -2))
    first = np.array([0])
    np.testing.assert_allclose(margins.ratio(one, opposite, first, first), [-1e6], rtol=1e-5)
