"""Alignment error rate: hand-computed cases, and unusual gold links."""

import pytest

from xlj.word_alignment.gold_alignments import error_rates as score
from xlj.word_alignment.gold_alignments import from_counts, link_counts


def test_a_case_computed_by_hand():
    # A has 4 links: 2 are sure, 1 more is possible, 1 is wrong. S has 3 links.
    predicted = [{(0, 0), (1, 1), (2, 1)}, {(0, 3)}]
    sure = [{(0, 0), (1, 1)}, {(0, 0)}]
    possible = [{(2, 1), (2, 2)}, set()]
    scores = score(predicted, sure, possible)
    assert scores.precision == pytest.approx(3 / 4)
    assert scores.recall == pytest.approx(2 / 3)
    assert scores.aer == pytest.approx(1 - (3 + 2) / (4 + 3))
    assert scores.f1 == pytest.approx(2 * (3 / 4) * (2 / 3) / (3 / 4 + 2 / 3))


def test_with_sure_links_only_aer_is_one_minus_f1():
    scores = score([{(0, 0), (1, 2)}], [{(0, 0), (1, 1), (2, 2)}], [set()])
    assert scores.aer == pytest.approx(1 - scores.f1)


def test_sure_links_are_also_possible_links():
    links = [{(0, 0)}]
    assert score(links, links, [set()]) == score(links, links, links) == (0, 1, 1, 1)


def test_rates_are_computed_over_all_sentences_not_as_means_of_sentences():
    scores = score([{(0, 0)}, set()], [{(0, 0)}, {(0, 0), (1, 1), (2, 2)}], [set(), set()])
    assert scores.recall == pytest.approx(1 / 4) and scores.aer == pytest.approx(1 - 2 / 5)


def test_unusual_gold_links_are_counted():
    odd = [(21, -100), (500, 3), (0, 0), (0, 0)]  # two outside of any sentence, one repeated
    scores = score([[(0, 0)]], [odd], [[]])
    assert scores.recall == pytest.approx(1 / 3) and scores.aer == pytest.approx(1 - 2 / 4)


def test_rates_with_a_denominator_of_0():
    assert score([], [], []) == (0, 0, 0, 0)
    assert score([set()], [{(0, 0)}], [set()]) == (1, 0, 0, 0)
    assert score([{(0, 0)}], [set()], [{(0, 0)}]) == (0, 1, 0, 0)


def test_unequal_numbers_of_sentences_are_an_error():
    with pytest.raises(ValueError):
        score([set()], [set(), set()], [set()])


def test_counts_of_each_sentence_add_up_to_the_scores():
    predicted, sure = [{(0, 0), (1, 1), (2, 1)}, {(0, 3)}], [{(0, 0), (1, 1)}, {(0, 0)}]
    counts = link_counts(predicted, sure, [{(2, 1), (2, 2)}, set()])
    assert counts.tolist() == [[3, 2, 3, 2], [1, 1, 0, 0]]
    assert from_counts(*counts.sum(0)).aer == pytest.approx(1 - (3 + 2) / (4 + 3))
    assert from_counts(*counts[0]).aer == 0
