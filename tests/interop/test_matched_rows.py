"""Rows of a new table are copies, means, or random draws that depend only on seed and id."""

import numpy as np
import pytest
from marked_pieces import MarkedPieces

from xlj.data.ragged import Ragged
from xlj.interop import matched_rows
from xlj.interop.matched_rows import RULES, UNMATCHED, Matches, embeddings, match_bias, share_table
from xlj.interop.vocabulary_matching import match

SOURCES = [[3], [], [0, 2], [1], [], [3, 3, 0], []]


def matches_of(sources):
    flat = np.array([i for ids in sources for i in ids], np.int32)
    rules = ["none" if not ids else "exact" if len(ids) == 1 else "pieces" for ids in sources]
    lengths = np.array([len(ids) for ids in sources], np.int64)
    return Matches(Ragged(flat, lengths), np.array([RULES.index(rule) for rule in rules], np.int8))


@pytest.fixture(scope="module")
def table():
    return np.random.default_rng(0).normal(0.5, 2, (4, 3000)).astype(np.float32)


@pytest.mark.parametrize("unmatched", UNMATCHED)
def test_matched_rows_are_copies_or_means(table, unmatched):
    rows = embeddings(table, matches_of(SOURCES), unmatched, 0.02, 7)
    assert rows.dtype == np.float32 and rows.shape == (7, 3000)
    assert (rows[0] == table[3]).all() and (rows[3] == table[1]).all()
    np.testing.assert_allclose(rows[2], table[[0, 2]].mean(0), rtol=1e-6)
    np.testing.assert_allclose(rows[5], table[[3, 3, 0]].mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rows_with_one_source_are_copied_bit_for_bit(dtype):
    """-0.0 equals 0.0, so only bits show a lost sign. Rows without a source have the bias +0."""
    bias = np.array([-0.0, 0.0, 1e-7, -np.inf], dtype)
    expected = np.array([0.0, bias[3], bias[0], bias[2], bias[1]], np.float32)
    matches = matches_of([[], [3], [0], [2], [1]])
    assert match_bias(bias, matches).view(np.int32).tolist() == expected.view(np.int32).tolist()
    rows = embeddings(bias[:, None], matches, "random", 0.02, 7)[1:, 0]
    assert rows.view(np.int32).tolist() == expected[1:].view(np.int32).tolist()


def test_rows_of_a_half_precision_table_are_float32(table):
    half = table.astype(np.float16)
    rows = embeddings(half, matches_of([[1], []]), "sampled", 0.02, 7)
    assert rows.dtype == np.float32 and (rows[0] == half[1].astype(np.float32)).all()
    assert np.isfinite(rows).all()


def test_unmatched_rows_can_be_the_mean_of_the_table(table):
    rows = embeddings(table, matches_of(SOURCES), "mean", 0.02, 7)
    np.testing.assert_allclose(rows[[1, 4, 6]], np.tile(table.mean(0), (3, 1)), rtol=1e-4)


@pytest.mark.parametrize("unmatched", ["random", "sampled"])
def test_drawn_rows_depend_on_seed_and_id_only(table, unmatched):
    def rows(sources, seed=7):
        return embeddings(table, matches_of(sources), unmatched, 0.02, seed)

    other_sources = [[0]] * 4 + [[], [1], [2], [3]]
    first = rows(SOURCES)
    assert (rows(other_sources)[4] == first[4]).all()
    assert (rows(SOURCES) == first).all()
    assert not (rows(SOURCES, seed=8)[4] == first[4]).any()
    assert not (first[1] == first[4]).any()
    narrow_rows = embeddings(table[:, :7], matches_of(SOURCES), unmatched, 0.02, 7)
    np.testing.assert_array_equal(narrow_rows, first[:, :7])
    many_rows = rows([[]] * 5000)  # several blocks
    assert (many_rows[[1, 4, 6]] == first[[1, 4, 6]]).all() and len(
        np.unique(many_rows, axis=0)
    ) == 5000


def test_drawn_rows_are_normal():
    old = np.random.default_rng(1).normal([1, -3], [0.5, 4], (100, 2))
    matches = matches_of([[]] * 20_000)
    random = embeddings(old, matches, "random", 0.02, 0) / 0.02
    sampled = (embeddings(old, matches, "sampled", 0.02, 0) - old.mean(0)) / old.std(0)
    np.testing.assert_allclose(random, sampled, atol=1e-4)
    np.testing.assert_allclose(random.mean(0), 0, atol=0.03)
    np.testing.assert_allclose(np.cov(random.T), np.eye(2), atol=0.04)
    np.testing.assert_allclose((np.abs(random) < 1).mean(0), 0.6827, atol=0.015)
    np.testing.assert_allclose((random**4).mean(0), 3, atol=0.25)
    wide_rows = embeddings(np.zeros((1, 5000)), matches_of([[]] * 4), "random", 1.0, 0)
    assert abs(np.corrcoef(wide_rows)[np.triu_indices(4, 1)]).max() < 0.06


def test_drawn_rows_equal_recorded_values():
    result = embeddings(np.zeros((1, 3)), matches_of([[], [0], []]), "random", 1.0, 7)
    expected = [[0.6000129, 0.6189254, 0.7030998], [0, 0, 0], [0.8598661, -0.5559390, 1.3236812]]
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_draws_equal_the_box_muller_transform_bit_for_bit(monkeypatch):
    """The transform uses the two halves of each hash. All angles are below one full turn."""
    hashes = np.random.default_rng(0).integers(0, 2**64, (50, 7), np.uint64)
    monkeypatch.setattr(matched_rows, "hash64", lambda ids, keys: hashes)
    first, second = hashes // 2**32, (hashes % 2**32).astype(np.float64)
    radius = np.sqrt(-2 * np.log((first + 0.5) / 2**32))
    expected = radius * np.cos(2 * np.pi * second / 2**32)
    np.testing.assert_array_equal(matched_rows._normal(np.arange(50), 7, 3), expected)


def test_the_smallest_draw_is_finite(monkeypatch):
    monkeypatch.setattr(matched_rows, "hash64", lambda ids, keys: np.zeros_like(keys + ids))
    result = embeddings(np.zeros((1, 3)), matches_of([[]]), "random", 1.0, 7)
    np.testing.assert_allclose(result, np.sqrt(66 * np.log(2)), rtol=1e-6)


def test_sums_are_computed_in_the_order_of_the_sources():
    table = np.array([[1e8], [-1e8], [1]], np.float32)
    assert embeddings(table, matches_of([[0, 1, 2]]), "mean", 0.02, 7) == np.float32(1) / 3


def test_an_unknown_rule_for_unmatched_rows_is_refused(table):
    with pytest.raises(ValueError, match="unmatched=zero: expected one of random, mean, sampled"):
        embeddings(table, matches_of(SOURCES), "zero", 0.02, 7)


def test_biases_are_copies_means_or_zero():
    bias = np.array([1, 2, 3, 4], np.float32)
    result = match_bias(bias, matches_of(SOURCES))
    assert result.dtype == np.float32
    assert result.tolist() == [4, 0, 2, 2, 0, 3, 0]


def test_the_share_of_each_rule_is_in_the_table():
    old = MarkedPieces(("the", "dog"), "wordpiece")
    new = MarkedPieces(("▁the", "▁The", "▁Hund", "x"))
    matches = match(old, new, [{"hund": ("dog",)}])
    tokens = {
        "en": np.array([0, 0, 0, 1, 6, 2, 0, 1, 0]),
        "de": np.array([0, 0, 0, 0, 1, 0, 3, 0, 0]),
        "sw": np.zeros(9, np.int64),
    }
    used = [RULES.index(rule) for rule in ("special", "exact", "normalised", "dictionary", "none")]
    assert sorted(matches.rules) == sorted([0] * 4 + used)
    assert share_table(matches, tokens).split("\n") == [
        "            total  special %  exact %  normalised %  dictionary %  none %",
        "vocabulary      9      55.56    11.11         11.11         11.11   11.11",
        "en             10      10.00    60.00         20.00          0.00   10.00",
        "de              4       0.00    25.00          0.00         75.00    0.00",
        "sw              0       0.00     0.00          0.00          0.00    0.00",
    ]
