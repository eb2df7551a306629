"""Alignment error rate: hand-computed cases, and unusual gold lines."""

import pytest

from xlj.alignment_math.error_rate import score


def test_by_hand():
    # A has 4 links: 2 are sure, 1 more is possible, 1 is wrong. S has 3 links.
    predicted = [{(0, 0), (1, 1), (2, 1)}, {(0, 3)}]
    sure = [{(0, 0), (1, 1)}, {(0, 0)}]
    possible = [{(2, 1), (2, 2)}, set()]
    found = score(predicted, sure, possible)
    assert found.precision == pytest.approx(3 / 4)
    assert found.recall == pytest.approx(2 / 3)
    assert found.aer == pytest.approx(1 - (3 + 2) / (4 + 3))
    assert found.f1 == pytest.approx(2 * (3 / 4) * (2 / 3) / (3 / 4 + 2 / 3))


def test_with_sure_links_only_aer_is_one_minus_f1():
    found = score([{(0, 0), (1, 2)}], [{(0, 0), (1, 1), (2, 2)}], [set()])
    assert found.aer == pytest.approx(1 - found.f1)


def test_possible_contains_sure():
    links = [{(0, 0)}]
    assert score(links, links, [set()]) == score(links, links, links) == (0, 1, 1, 1)


def test_counts_are_over_the_set_not_means_of_sentences():
    found = score([{(0, 0)}, set()], [{(0, 0)}, {(0, 0), (1, 1), (2, 2)}], [set(), set()])
    assert found.recall == pytest.approx(1 / 4) and found.aer == pytest.approx(1 - 2 / 5)


def test_odd_gold_links_stay_in_the_count():
    odd = [(21, -100), (500, 3), (0, 0), (0, 0)]  # outside of any sentence; twice the same
    found = score([[(0, 0)]], [odd], [[]])
    assert found.recall == pytest.approx(1 / 3) and found.aer == pytest.approx(1 - 2 / 4)


def test_zero_divided_by_zero():
    assert score([], [], []) == (0, 0, 0, 0)
    assert score([set()], [{(0, 0)}], [set()]) == (1, 0, 0, 0)
    assert score([{(0, 0)}], [set()], [{(0, 0)}]) == (0, 1, 0, 0)


def test_unequal_numbers_of_sentences_are_an_error():
    with pytest.raises(ValueError):
        score([set()], [set(), set()], [set()])
