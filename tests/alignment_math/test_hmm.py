"""The hidden Markov model of word alignment against sums over all alignments."""

import itertools

import jax
import numpy as np
import pytest

from xlj.alignment_math import hmm
from xlj.alignment_math.hmm import NULL_RATE, Emission, log_likelihood

posteriors = jax.jit(hmm.posteriors)


def by_enumeration(source, null, jumps):
    """Computes log p of one pair and the posteriors of its links by a sum over all (m + 1)^n
    alignments, in float64. The place before the first word is -1; the null word does not change the
    place."""
    m, n = source.shape
    longest = len(jumps) // 2

    def move(place, to):
        powers = np.exp([jumps[np.clip(i - place, -longest, longest) + longest] for i in range(m)])
        return powers[to] / powers.sum()

    total, links = 0.0, np.zeros((m, n))
    for alignment in itertools.product([None, *range(m)], repeat=n):
        p, place = 1.0, -1
        for j, i in enumerate(alignment):
            if i is None:
                p *= NULL_RATE * np.exp(null[j])
            else:
                p *= (1 - NULL_RATE) * move(place, i) * np.exp(source[i, j])
                place = i
        total += p
        for j, i in enumerate(alignment):
            if i is not None:
                links[i, j] += p
    return np.log(total), links / total


def random_pair(seed, m, n, jumps=5, scale=2.0):
    numbers = np.random.default_rng(seed)
    return (
        scale * numbers.normal(size=(m, n)),
        scale * numbers.normal(size=n),
        numbers.normal(size=jumps),
    )


def as_arguments(source, null, jumps):
    return Emission(np.float32(source), np.float32(null)), np.float32(jumps)


@pytest.mark.parametrize("m, n", [(1, 1), (1, 4), (4, 1), (3, 4), (4, 3)])
def test_likelihood_and_posteriors_of_a_pair_equal_the_enumeration(m, n):
    source, null, jumps = random_pair(m + 10 * n, m, n)
    expected, links = by_enumeration(source, null, jumps)
    ids = np.ones(m, np.int32), np.ones(n, np.int32)
    actual = posteriors(*as_arguments(source, null, jumps), *ids)
    np.testing.assert_allclose(actual.log_likelihood, expected, rtol=1e-5)
    np.testing.assert_allclose(actual.emission.source, links, atol=1e-6)
    np.testing.assert_allclose(actual.emission.null, 1 - links.sum(0), atol=1e-6)


@pytest.mark.parametrize(
    "source_ids, target_ids",
    [([0, 1, 1, 1, 0, 2, 2, 0], [1, 1, 0, 2, 2, 2, 0]), ([1, 1, 1, 2, 2, 0], [1, 1, 2, 2, 2])],
    ids=["with specials between", "one after the other"],
)
def test_pairs_of_a_row_are_independent(source_ids, target_ids):
    source_ids, target_ids = np.array([source_ids] * 2), np.array([target_ids] * 2)
    m, n = source_ids.shape[1], target_ids.shape[1]
    rows = [random_pair(seed, m, n) for seed in (1, 2)]
    batch = [np.stack(parts) for parts in zip(*rows, strict=True)]
    actual = posteriors(*as_arguments(*batch), np.int32(source_ids), np.int32(target_ids))
    for row, (source, null, jumps) in enumerate(rows):
        total, links = 0.0, np.zeros((m, n))
        for example in (1, 2):
            i = np.flatnonzero(source_ids[row] == example)
            j = np.flatnonzero(target_ids[row] == example)
            log, links[np.ix_(i, j)] = by_enumeration(source[np.ix_(i, j)], null[j], jumps)
            total += log
        np.testing.assert_allclose(actual.log_likelihood[row], total, rtol=1e-5)
        np.testing.assert_allclose(actual.emission.source[row], links, atol=1e-6)


def test_posteriors_of_jumps_are_the_derivative_of_the_likelihood():
    source, null, jumps = random_pair(3, 4, 3)
    ids = np.ones(4, np.int32), np.ones(3, np.int32)
    derivatives = posteriors(*as_arguments(source, null, jumps), *ids).jumps
    for k in range(len(jumps)):
        up, down = jumps.copy(), jumps.copy()
        up[k], down[k] = up[k] + 1e-4, down[k] - 1e-4
        slope = by_enumeration(source, null, up)[0] - by_enumeration(source, null, down)[0]
        np.testing.assert_allclose(derivatives[k], slope / 2e-4, atol=1e-4)


def test_rows_without_a_pair_have_zero_likelihood_and_posteriors():
    source, null, jumps = random_pair(4, 3, 4)
    for ids in (([0, 0, 0], [0, 0, 0, 0]), ([1, 1, 1], [0, 0, 0, 0]), ([0, 0, 0], [1, 1, 1, 1])):
        actual = posteriors(*as_arguments(source, null, jumps), *(np.int32(side) for side in ids))
        assert float(actual.log_likelihood) == 0
        assert all(not np.any(x) for x in jax.tree.leaves((actual.emission, actual.jumps)))


@pytest.mark.parametrize("scale", [200.0, -200.0])
def test_large_ratios_do_not_overflow(scale):
    source, null, jumps = random_pair(5, 3, 40, scale=scale)
    ids = np.ones(3, np.int32), np.ones(40, np.int32)
    actual = posteriors(*as_arguments(source, null, jumps), *ids)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(actual))
    columns = actual.emission.source.sum(0) + actual.emission.null
    np.testing.assert_allclose(columns, 1, atol=1e-4)


def test_log_likelihood_equals_that_of_posteriors():
    source, null, jumps = random_pair(6, 3, 3)
    ids = np.ones(3, np.int32), np.ones(3, np.int32)
    actual = posteriors(*as_arguments(source, null, jumps), *ids).log_likelihood
    assert actual == log_likelihood(*as_arguments(source, null, jumps), *ids)
