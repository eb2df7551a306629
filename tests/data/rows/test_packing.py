"""Packed rows contain exactly the input, without overlaps and with little padding."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xlj.config import max_pairs, row_kinds
from xlj.data.rows import packing
from xlj.data.rows.kinds.bitext import Bitext
from xlj.data.rows.kinds.pairs import Pairs
from xlj.data.rows.kinds.sentences import Sentences
from xlj.data.rows.kinds.text import Text
from xlj.data.rows.row_kind import count_rows
from xlj.data.tokenizer.layout import BOS, EOS, PAD, Ragged

DTYPE = np.dtype("<u2")
MASK = 60_000
LENGTHS = st.integers(8, 130)
SIDES = st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), max_size=40)
EDGE_CASES = [(16, 16), (17, 16), (0, 3), (29, 32), (30, 32), (32, 29)]
"""Lengths of the sides of pairs that just fit, or just exceed, half a row or a row of 64."""


def ragged(lengths, first: int = 4) -> Ragged:
    """Unique ids, so that tests notice a lost or repeated id."""
    lengths = np.asarray(lengths, np.int64)
    return Ragged(np.arange(first, first + lengths.sum(), dtype=np.int32), lengths)


def two_sides(sizes) -> tuple[Ragged, Ragged]:
    first, second = np.array(sizes, np.int64).reshape(-1, 2).T
    return ragged(first), ragged(second, 30_000)


def parts(sequences: Ragged) -> list[tuple[int, ...]]:
    ids, ends = sequences.ids.tolist(), (sequences.starts + sequences.lengths).tolist()
    return [tuple(ids[a:b]) for a, b in zip(sequences.starts, ends, strict=True)]


def examples(rows: np.ndarray) -> list[tuple[int, ...]]:
    """Every example of every row, in order; padding may only be at the end of rows."""
    output = []
    for row in rows.tolist():
        end = len(row) - next((i for i, t in enumerate(reversed(row)) if t != PAD), len(row))
        assert PAD not in row[:end] and row[0] == BOS
        starts = [i for i in range(end) if row[i] == BOS]
        output += [tuple(row[a:b]) for a, b in zip(starts, [*starts[1:], end], strict=True)]
    return output


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=6), max_size=20), LENGTHS)
@example([[6], [7], [0], [3, 0, 3], [3, 4], [12], [13]], 8)
def test_text_stays_in_order(sizes, length):
    lines = ragged([size for document in sizes for size in document])
    documents = np.repeat(np.arange(len(sizes)), [len(document) for document in sizes])
    packed = Text().pack([lines], length, DTYPE, documents=documents)
    bodies = {e[1]: e[1:-1] for e in examples(packed.rows["tokens"])}  # by the unique first id
    assert len(bodies) == packed.examples
    assert all(
        e[0] == BOS and e[-1] == EOS and len(e) <= length for e in examples(packed.rows["tokens"])
    )
    line_ids, cut = parts(lines), 0
    for number in range(len(sizes)):
        joined = sum((line_ids[i] for i in np.flatnonzero(documents == number)), ())
        cut += len(joined) > length - 2
        while joined:  # full pieces, then the rest
            body = bodies.pop(joined[0])
            assert body == joined[: length - 2]
            joined = joined[len(body) :]
    assert not bodies and packed.cut == cut
    assert packed.sentences == (lines.lengths > 0).sum()


def test_short_documents_share_rows():
    packed = Text().pack([ragged([8] * 30)], 32, DTYPE, documents=np.arange(30))
    assert packed.examples == 30 and len(packed.rows["tokens"]) == 10


@given(SIDES, LENGTHS)
@example(EDGE_CASES, 64)
def test_pairs_are_whole_or_dropped_and_counted(sizes, length):
    first, second = two_sides(sizes)
    packed = Pairs().pack([first, second], length, DTYPE)
    expected, dropped = Counter(), {"empty side": 0, "too long": 0}
    for a, b in zip(parts(first), parts(second), strict=True):
        if not a or not b:
            dropped["empty side"] += 1
        elif len(a) + len(b) + 3 > length:
            dropped["too long"] += 1
        else:
            expected[BOS, *a, EOS, *b, EOS] += 1
    assert Counter(examples(packed.rows["tokens"])) == expected and packed.dropped == dropped
    assert packed.examples == packed.sentences == expected.total()


def test_pairs_fill_rows_of_four_times_their_mean_length():
    rng = np.random.default_rng(2)
    for mean in (10, 20, 28):
        sides = [ragged(rng.gamma(3, mean / 6, 16_384).astype(int) + 1) for _ in range(2)]
        length = int(4 * (sides[0].lengths + sides[1].lengths + 3).mean())
        rows = Pairs().pack(sides, length, DTYPE).rows["tokens"]
        assert (rows != PAD).mean() >= 0.95


@given(st.lists(st.integers(0, 150), max_size=40), LENGTHS)
@example([0, 7, 8, 9], 12)
@example([0, 50, 51, 52], 64)
def test_sentences_with_slots_always_fit(sizes, length):
    lines = ragged(sizes)
    packed = Sentences().pack([lines], length, DTYPE, mask=MASK)
    limit = int(length / 1.2) - 2
    expected: Counter = Counter()
    for line in filter(None, parts(lines)):
        line = line[:limit]
        expected[BOS, *line, EOS, *[MASK] * int(np.ceil(len(line) / 5))] += 1
    assert Counter(examples(packed.rows["tokens"])) == expected
    assert packed.cut == (lines.lengths > limit).sum()
    assert packed.dropped == {"empty": (lines.lengths == 0).sum()}


@given(SIDES, LENGTHS)
@example(EDGE_CASES, 36)
@example([(3, 2)] * 9, 128)
def test_both_halves_of_a_bitext_row_have_its_pairs_in_one_order(sizes, length):
    first, second = two_sides(sizes)
    half, most = length // 2, max_pairs(length)
    packed = Bitext().pack([first, second], length, DTYPE)
    actual = []
    assert {field: rows.shape[1] for field, rows in packed.rows.items()} == {
        "first": half,
        "second": half,
    }
    for row in zip(packed.rows["first"], packed.rows["second"], strict=True):
        sides = [examples(side[None]) for side in row]
        assert 1 <= len(sides[0]) == len(sides[1]) <= most
        actual += zip(*sides, strict=True)
    expected = [
        ((BOS, *a, EOS), (BOS, *b, EOS))
        for a, b in zip(parts(first), parts(second), strict=True)
        if 0 < len(a) <= half - 2 and 0 < len(b) <= half - 2
    ]
    if most == 1:  # pairs keep the order of the text
        assert actual == expected
    assert sorted(actual) == expected and packed.sentences == len(expected)
    assert packed.examples == 2 * len(expected)
    empty = sum(not a or not b for a, b in sizes)
    assert packed.dropped == {
        "empty side": empty,
        "too long": len(sizes) - empty - len(expected),
    }


@pytest.mark.parametrize("length", [64, 96, 128])
def test_bitext_rows_contain_as_many_short_pairs_as_allowed(length):
    rng = np.random.default_rng(length)
    packed = Bitext().pack(two_sides(rng.integers(1, 30, (400, 2))), length, DTYPE)
    assert len(packed.rows["first"]) < 0.9 * packed.sentences
    short = Bitext().pack(two_sides([(3, 3)] * 100), length, DTYPE)
    assert len(short.rows["first"]) == -(-100 // max_pairs(length))


@pytest.mark.parametrize("kind", ["pairs", "bitext"])
@given(SIDES, LENGTHS, st.integers(1, 4))
@example([(3, 2)] * 9, 128, 3)
def test_pairs_are_recovered_unchanged_from_rows_and_repacked_rows(kind, sizes, length, every):
    row_kind = row_kinds.load(kind)
    rows = row_kind.pack(two_sides(sizes), length, DTYPE).rows
    some = {name: array[::every] for name, array in rows.items()}
    few = row_kind.repack(some)
    fits = (lambda a, b: max(a, b) + 2 <= length // 2) if kind == "bitext" else (
        lambda a, b: a + b + 3 <= length)  # fmt: skip
    expected = [
        pair
        for pair, (a, b) in zip(zip(*map(parts, two_sides(sizes)), strict=True), sizes, strict=True)
        if a and b and fits(a, b)
    ]
    pairs, some_pairs, few_pairs = (
        sorted(zip(*map(parts, row_kind.unpack(r)), strict=True)) for r in (rows, some, few)
    )
    assert pairs == expected and some_pairs == few_pairs
    assert count_rows(few) <= count_rows(some)


@given(st.lists(st.integers(1, 40), max_size=30), LENGTHS)
def test_repacking_loses_nothing(sizes, length):
    single = [
        Text()
        .pack([ragged([size], 4 + 40 * i)], length, DTYPE, documents=np.zeros(1, int))
        .rows["tokens"]
        for i, size in enumerate(sizes)
    ]
    rows = np.concatenate([np.empty((0, length), DTYPE), *single])
    packed = Text().repack({"tokens": rows})["tokens"]
    assert Counter(examples(packed)) == Counter(examples(rows)) and len(packed) <= len(rows)
    fullest = np.sort((packed != PAD).sum(1))[:2]
    assert len(packed) < 2 or fullest.sum() > length, "two rows would have fitted into one"


@given(st.data(), st.integers(5, 600), st.none() | st.integers(1, 5))
def test_best_fit_never_overlaps_items(data, capacity, most):
    sizes = np.array(data.draw(st.lists(st.integers(1, capacity), max_size=60)), np.int64)
    bins, offsets, count = packing.best_fit(sizes, capacity, most)
    used = np.zeros((count, capacity), int)
    for b, o, s in zip(bins, offsets, sizes, strict=True):
        used[b, o : o + s] += 1
    assert used.sum() == sizes.sum() and used.max(initial=0) <= 1 and used.any(axis=1).all()
    items = np.bincount(bins, minlength=count)
    assert items.max(initial=0) <= (most or len(sizes))
    space, accepts_more = capacity - used.sum(1), items < (most or len(sizes) + 1)
    for b in range(count):  # the largest item, placed first, did not fit in earlier bins
        assert not (accepts_more[:b] & (space[:b] >= sizes[bins == b].max())).any()


@given(st.lists(st.integers(1, 12), max_size=60))
@example([9, 6, 2, 2])
def test_best_fit_puts_the_longest_item_first_into_the_fullest_bin(sizes):
    left: list[int] = []  # room in each bin
    for size in sorted(sizes, reverse=True):
        fitting = [space for space in left if space >= size]
        if fitting:
            left.remove(min(fitting))
        left.append(min(fitting, default=12) - size)
    bins, _, count = packing.best_fit(np.array(sizes, np.int64), 12)
    actual = 12 - np.bincount(bins, weights=sizes, minlength=count)
    assert sorted(actual) == sorted(left)


def test_empty_text_gives_no_rows():
    empty = Ragged(np.empty(0, np.int32), np.zeros(3, np.int64))
    text = Text().pack([empty], 16, DTYPE, documents=np.zeros(3, int)).rows["tokens"]
    assert text.shape == Pairs().pack([empty, empty], 16, DTYPE).rows["tokens"].shape == (0, 16)
    assert Bitext().pack([empty, empty], 16, DTYPE).rows["second"].shape == (0, 8)
