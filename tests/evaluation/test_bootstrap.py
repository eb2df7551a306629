"""The paired bootstrap: known cases, a plain implementation, and errors."""

import math
import random
import statistics

import numpy as np
import pytest

from xlj.evaluation.bootstrap import paired_bootstrap
from xlj.word_alignment.gold_alignments import from_counts


def plain(first, second, statistic, samples, seed):
    """A second implementation, with Python's random numbers and lists."""
    rng, size = random.Random(seed), len(first)
    differences = []
    for _ in range(samples):
        drawn = [rng.randrange(size) for _ in range(size)]
        differences.append(
            statistic([second[i] for i in drawn]) - statistic([first[i] for i in drawn])
        )
    cuts = statistics.quantiles(differences, n=40, method="inclusive")
    return statistic(second) - statistic(first), cuts[0], cuts[-1]


def test_means_agree_with_a_plain_implementation():
    """Systems of 400 items that share what makes an item hard; numbers of other generators."""
    rng = random.Random(0)
    hard = [rng.random() for _ in range(400)]
    first = [rng.random() > each for each in hard]
    second = [rng.random() > each - 0.1 for each in hard]
    expected = plain(first, second, statistics.fmean, 4000, 1)
    assert paired_bootstrap(first, second) == pytest.approx(expected, abs=0.004)


def test_error_rates_of_a_corpus_agree_with_a_plain_implementation():
    """Long sentences weigh more: the mean of the rates of sentences is another number."""
    rng = np.random.RandomState(0)
    sure = rng.randint(1, 30, 200)
    systems = []
    for share in (0.7, 0.75):
        correct = rng.binomial(sure, share)
        systems.append(np.stack([sure, sure, correct, correct], 1))

    def rate(sentences):
        return 1 - sum(s[2] + s[3] for s in sentences) / sum(s[0] + s[1] for s in sentences)

    expected = plain(*(system.tolist() for system in systems), rate, 4000, 1)
    actual = paired_bootstrap(*systems, lambda of_pairs: from_counts(*of_pairs.sum(0)).aer)
    assert actual == pytest.approx(expected, abs=0.003)
    assert actual.high < 0  # the second system has fewer errors


def test_the_interval_is_that_of_the_paired_differences():
    """The standard error of the mean difference; unpaired samples have an interval 70 times as
    wide."""
    rng = np.random.RandomState(0)
    first, noise = rng.normal(0, 10, 1000), rng.normal(0.1, 0.1, 1000)
    error = noise.std() / math.sqrt(1000)
    difference, low, high = paired_bootstrap(first, first + noise)
    assert difference == pytest.approx(noise.mean())
    assert [low, high] == pytest.approx(noise.mean() + error * np.array([-1.96, 1.96]), abs=4e-4)


def test_equal_systems_and_constant_differences_have_an_interval_without_width():
    items = np.arange(50.0)
    assert paired_bootstrap(items, items) == (0, 0, 0)
    assert paired_bootstrap(items, items + 2) == pytest.approx((2, 2, 2))


def test_swapped_systems_have_the_opposite_interval():
    """Both calls draw the same samples."""
    rng = np.random.RandomState(1)
    first, second = rng.normal(size=(2, 60))
    difference, low, high = paired_bootstrap(first, second)
    assert paired_bootstrap(second, first) == pytest.approx((-difference, -high, -low))


def test_samples_do_not_depend_on_the_release_of_numpy():
    first, second = np.arange(20) % 3, np.arange(20) % 4
    assert paired_bootstrap(first, second, samples=100) == pytest.approx((0.55, -0.02625, 1.1))
    assert paired_bootstrap(first, second, samples=100, seed=1) != paired_bootstrap(
        first, second, samples=100
    )


@pytest.mark.parametrize(
    "first, second, samples, message",
    [
        ([1, 2], [1, 2, 3], 9, r"shapes \(2,\) and \(3,\)"),
        ([[1, 2]], [[1], [2]], 9, r"shapes \(1, 2\) and \(2, 1\)"),
        (1.0, 2.0, 9, r"shapes \(\) and \(\)"),
        ([], [], 9, "0 items"),
        ([1], [2], 0, "samples=0"),
        ([1, 2], [1, math.nan], 9, "not finite"),
    ],
)
def test_wrong_items_are_refused(first, second, samples, message):
    with pytest.raises(ValueError, match=message):
        paired_bootstrap(first, second, samples=samples)
