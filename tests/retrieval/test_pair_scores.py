"""Selection of the best pairs, and the sentences that can be neighbours.

Ratio margins equal NumPy, with neighbours from the distinct sentences of each side.
"""

import numpy as np
import pytest

from xlj.retrieval import pair_scores
from xlj.retrieval.pair_scores import (
    NO_SCORE,
    FirstOccurrences,
    TextPair,
    Vectors,
    join,
    select_best,
)

NAN = np.nan


@pytest.mark.parametrize(
    "scores, share, threshold, selected",
    [
        ([0.5, 0.5], 0.5, None, [True, False]),
        ([0.5, 0.1, 0.5, 0.9, 0.5], 0.6, None, [True, False, True, True, False]),
        ([0.1, 0.2, 0.3], 0.5, None, [False, True, True]),  # round(1.5) is 2
        ([0.25, 0.5, 0.75], None, 0.5, [False, True, True]),
        ([0.1, 0.2, 0.3, 0.4], 0.75, 0.25, [False, False, True, True]),
        ([NAN, -0.5, -1.5], None, -1.0, [False, True, False]),
        ([NAN, -0.5], 1.0, None, [False, True]),
        ([0.1, NAN, 0.2, NAN], 0.5, None, [True, False, True, False]),  # a half of all pairs
    ],
)
def test_the_best_pairs_are_selected(scores, share, threshold, selected):
    """Ties, thresholds that equal a score, negative scores, and shares of few pairs."""
    result = select_best(np.array(scores, np.float32), share, threshold)
    assert result.tolist() == selected


def test_first_occurrences_are_sorted_and_come_from_whole_pairs():
    occurrences = FirstOccurrences()
    occurrences.add(["e", "b", "e", "", "d"], [True, True, True, False, False])
    occurrences.add(["c", "b", "d", "a", "d", "f"], [True] * 6)
    assert occurrences.indices().tolist() == [0, 1, 5, 7, 8, 10]


def test_margins_use_the_distinct_sentences_of_each_side(monkeypatch):
    """Only targets repeat, and a pair with an empty side is no neighbour."""
    monkeypatch.setattr(pair_scores, "_CHUNK", 3)
    pairs = [TextPair(a, b, "") for a, b in zip("abcdefgh", "uvuw xyu", strict=True)]
    pairs[4] = TextPair("e", "", "")
    calls = []
    monkeypatch.setattr(pair_scores, "ratio", lambda *arguments: calls.append(arguments))
    both = np.arange(16, dtype=np.float32).reshape(8, 2)
    pair_scores.margins_of(iter(pairs), [both[:5], both[5:]], 1)
    ((source, target, sources, targets),) = calls
    assert np.concatenate(list(source.blocks()))[:, 0].tolist() == list(range(0, 16, 2))
    assert np.concatenate(list(target.blocks()))[:, 0].tolist() == list(range(1, 16, 2))
    assert sources.tolist() == [0, 1, 2, 3, 5, 6, 7]
    assert targets.tolist() == [0, 1, 3, 5, 6]


def test_joined_scores_have_nan_for_missing_scores():
    joined = join([np.array([NO_SCORE, 0.5], np.float32), np.array([-1], np.float32)])
    assert joined.dtype == np.float32
    np.testing.assert_array_equal(joined, np.float32([NAN, 0.5, -1]))
    assert join([]).shape == (0,)


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
    result = pair_scores.ratio(*sides, sources, targets)
    assert result.dtype == np.float32
    expected = plain_margins(source, target, sources, targets)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    exchanged = plain_margins(source, target, targets, sources)
    assert not np.isclose(exchanged, expected, rtol=1e-3).any()


def test_a_negative_density_is_replaced_by_a_small_divisor():
    one, opposite = (Vectors([np.array([[x, 0]], np.float32)]) for x in (3, -2))
    first = np.array([0])
    np.testing.assert_allclose(pair_scores.ratio(one, opposite, first, first), [-1e6], rtol=1e-5)
