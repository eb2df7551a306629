"""Rows hold exactly what went in, nothing overlaps, and little space is left."""

from collections import Counter

import numpy as np
import pytest

from xlj.data.rows import packing
from xlj.data.rows.packing import Ragged
from xlj.data.tokenizer.layout import BOS, EOS, PAD

DTYPE = np.dtype("<u2")
MASK = 60_000


def ragged(rng, lengths) -> Ragged:
    """Ids of which no two are alike, so that a lost or doubled one is seen."""
    lengths = np.asarray(lengths, np.int64)
    return Ragged(4 + rng.permutation(lengths.sum()).astype(np.int32) % 59_000, lengths)


def parts(sequences: Ragged) -> list[tuple[int, ...]]:
    return [tuple(p.tolist()) for p in np.split(sequences.ids, sequences.starts[1:])]


def examples(rows: np.ndarray) -> list[tuple[int, ...]]:
    """Every example of every row, in order; padding may stand at the end of rows only."""
    found = []
    for row in rows.tolist():
        end = len(row) - next((i for i, t in enumerate(reversed(row)) if t != PAD), len(row))
        assert PAD not in row[:end] and row[0] == BOS
        starts = [i for i in range(end) if row[i] == BOS]
        found += [tuple(row[a:b]) for a, b in zip(starts, [*starts[1:], end], strict=True)]
    return found


@pytest.mark.parametrize("length", [8, 31, 128])
def test_text_is_kept_in_order(length):
    rng = np.random.default_rng(length)
    documents = np.sort(rng.integers(0, 60, 400))
    lines = ragged(rng, rng.integers(0, 40, 400))
    packed = packing.text(lines, documents, length, DTYPE)
    found = examples(packed.rows)
    assert len(found) == packed.examples
    assert all(e[0] == BOS and e[-1] == EOS and len(e) <= length for e in found)
    bodies = {e[1]: e[1:-1] for e in found}  # by their first id, which is unlike all others
    split = parts(lines)
    cut = 0
    for document in range(60):
        joined = sum((split[i] for i in np.flatnonzero(documents == document)), ())
        cut += len(joined) > length - 2
        while joined:  # full pieces, then the tail
            body = bodies.pop(joined[0])
            assert body == joined[: length - 2]
            joined = joined[len(body) :]
    assert not bodies and packed.cut == cut > 0
    assert packed.sentences == (lines.lengths > 0).sum()


def test_short_documents_share_rows():
    rng = np.random.default_rng(0)
    packed = packing.text(ragged(rng, [8] * 30), np.arange(30), 32, DTYPE)
    assert packed.examples == 30 and len(packed.rows) == 10


def test_pairs_are_whole_or_dropped_and_counted():
    rng = np.random.default_rng(1)
    first = ragged(rng, rng.integers(0, 40, 3000))
    second = ragged(rng, rng.integers(0, 40, 3000))
    packed = packing.pairs(first, second, 64, DTYPE)
    wanted, dropped = Counter(), Counter()
    for a, b in zip(parts(first), parts(second), strict=True):
        if not a or not b:
            dropped["empty side"] += 1
        elif len(a) + len(b) + 3 > 64:
            dropped["too long"] += 1
        else:
            wanted[BOS, *a, EOS, *b, EOS] += 1
    assert Counter(examples(packed.rows)) == wanted
    assert packed.dropped == dropped and min(dropped.values()) > 0
    assert packed.examples == packed.sentences == wanted.total()


def test_pairs_fill_rows_of_four_times_their_mean():
    rng = np.random.default_rng(2)
    for mean in (10, 20, 28):
        sides = [ragged(rng, rng.gamma(3, mean / 6, 16_384).astype(int) + 1) for _ in range(2)]
        length = int(4 * (sides[0].lengths + sides[1].lengths + 3).mean())
        rows = packing.pairs(*sides, length, DTYPE).rows
        assert (rows != PAD).mean() >= 0.95


@pytest.mark.parametrize("length", [8, 12, 13, 64, 127])
def test_sentences_with_slots_always_fit(length):
    rng = np.random.default_rng(length)
    lines = ragged(rng, rng.integers(0, length + 10, 500))
    packed = packing.sentences(lines, length, DTYPE, mask=MASK)
    found = Counter(examples(packed.rows))
    limit = int(length / 1.2) - 2
    wanted: Counter = Counter()
    for line in filter(None, parts(lines)):
        line = line[:limit]
        wanted[BOS, *line, EOS, *[MASK] * int(np.ceil(len(line) / 5))] += 1
    assert found == wanted
    assert packed.cut == (lines.lengths > limit).sum() > 0
    assert packed.dropped == {"empty": (lines.lengths == 0).sum()}


def test_bitext_has_each_sentence_in_its_half():
    rng = np.random.default_rng(4)
    first, second = (ragged(rng, rng.integers(0, 20, 300)) for _ in range(2))
    packed = packing.bitext(first, second, 32, DTYPE)
    kept = [
        (list(a), list(b))
        for a, b in zip(parts(first), parts(second), strict=True)
        if 0 < len(a) <= 14 and 0 < len(b) <= 14
    ]
    assert len(packed.rows) == packed.sentences == len(kept)
    assert packed.sentences + sum(packed.dropped.values()) == 300
    for row, sides in zip(packed.rows, kept, strict=True):
        for half, side in zip((row[:16], row[16:]), sides, strict=True):
            assert list(half) == [0, *side, 2, *[1] * (14 - len(side))]


@pytest.mark.parametrize("seed", range(3))
def test_a_row_of_bitext_has_several_pairs_in_one_order(seed):
    rng = np.random.default_rng(seed)
    shape = 64 + 32 * seed
    first, second = (ragged(rng, rng.integers(0, 40, 400)) for _ in range(2))
    packed = packing.bitext(first, second, shape, DTYPE)
    found = []
    for row in packed.rows:
        sides = [examples_of(half) for half in (row[: shape // 2], row[shape // 2 :])]
        assert len(sides[0]) == len(sides[1]) <= shape // 32
        found += zip(*sides, strict=True)
    wanted = [
        ([0, *a, 2], [0, *b, 2]) for a, b in zip(parts(first), parts(second), strict=True)
        if 0 < len(a) <= shape // 2 - 2 and 0 < len(b) <= shape // 2 - 2
    ]  # fmt: skip
    assert sorted(found) == sorted(wanted) and packed.sentences == len(wanted)
    assert packed.examples == 2 * len(wanted) and len(packed.rows) < 0.9 * len(wanted)
    assert packed.sentences + sum(packed.dropped.values()) == 400
    short = packing.bitext(*[ragged(rng, np.full(100, 3))] * 2, shape, DTYPE)
    assert len(short.rows) == -(-100 // (shape // 32)), "as many pairs as are allowed, no more"


def examples_of(half):
    """The examples of half a row, which stand one after another at its beginning."""
    ids = half[half != 1].tolist()
    assert half[: len(ids)].tolist() == ids
    starts = [place for place, token in enumerate(ids) if token == 0]
    return [ids[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]


@pytest.mark.parametrize("kind", ["pairs", "bitext"])
@pytest.mark.parametrize("length", [32, 128])
def test_pairs_come_out_as_they_went_in(kind, length):
    rng = np.random.default_rng(0)
    first, second = (ragged(rng, rng.integers(1, 9, 50)) for _ in range(2))
    rows = packing.pack(kind, [first, second], None, length, DTYPE, mask=299).rows
    some = rows[rng.permutation(len(rows))[::3]]
    few = packing.repack(kind, some)
    before, after, of_some, of_few = (
        sorted(zip(*map(parts, sides), strict=True))
        for sides in ((first, second), *(packing.sides_of(kind, r) for r in (rows, some, few)))
    )
    assert before == after and of_some == of_few and len(few) <= len(some)
    assert all(len(side.lengths) == 0 for side in packing.sides_of(kind, rows[:0]))


def test_repacking_loses_nothing():
    rng = np.random.default_rng(4)
    single = [
        packing.text(ragged(rng, [n]), np.zeros(1, int), 64, DTYPE).rows for n in range(1, 50)
    ]
    rows = np.concatenate(single)
    packed = packing.repack("text", rows)
    assert Counter(examples(packed)) == Counter(examples(rows))
    assert len(packed) < 0.6 * len(rows)
    assert packing.repack("text", rows[:0]).shape == (0, 64)


@pytest.mark.parametrize("seed", range(5))
def test_best_fit_never_overlaps(seed):
    rng = np.random.default_rng(seed)
    capacity = int(rng.integers(5, 600))
    sizes = rng.integers(1, capacity + 1, 2000)
    bins, offsets, count = packing.best_fit(sizes, capacity)
    used = np.zeros((count, capacity), int)
    for b, o, s in zip(bins, offsets, sizes, strict=True):
        used[b, o : o + s] += 1
    assert used.sum() == sizes.sum() and used.max() == 1 and used.any(axis=1).all()


def test_nothing_gives_no_rows():
    none = Ragged(np.empty(0, np.int32), np.zeros(3, np.int64))
    assert packing.text(none, np.zeros(3, int), 16, DTYPE).rows.shape == (0, 16)
    assert packing.pairs(none, none, 16, DTYPE).rows.shape == (0, 16)
