"""Batches of pairs encode every piece once, in few shapes, for sentences of any length."""

import numpy as np
import pytest
from modern_tokenizers import modernbert

from xlj import phrasebook
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.word_alignment import pair_batches
from xlj.word_alignment.pair_batches import Pieces, batches, pieces_of, windows

LIMIT = 38

both_ways = pytest.mark.parametrize("together", [True, False])


def random_pairs(count, longest, seed=0):
    """Pairs of sentences whose pieces are distinct numbers."""
    random = np.random.default_rng(seed)
    pairs, next_id = [], 10
    for _ in range(count):
        sides = []
        for size in random.integers(0, longest + 1, 2):
            ids = np.arange(next_id, next_id + size, dtype=np.int32)
            sides.append(Pieces(ids, np.arange(size, dtype=np.int32)))
            next_id += size
        pairs.append(tuple(sides))
    return pairs


@both_ways
@pytest.mark.parametrize("longest", [15, 60, 300])
def test_every_piece_has_exactly_one_place(together, longest, monkeypatch):
    monkeypatch.setattr(pair_batches, "BATCH_TOKENS", 200)
    pairs = random_pairs(60, longest)
    seen = []
    for batch in batches(pairs, LIMIT, together):
        tokens, rows = batch.rows.tokens.reshape(-1), batch.rows
        for k, member in enumerate(batch.members):
            for side, places in zip(
                pairs[member], (rows.source_indices[k], rows.target_indices[k]), strict=True
            ):
                assert (places[: len(side.ids)] >= 0).all() and (places[len(side.ids) :] < 0).all()
                np.testing.assert_array_equal(tokens[places[: len(side.ids)]], side.ids)
        unused = slice(len(batch.members), None)
        assert (rows.source_indices[unused] < 0).all() and (rows.target_indices[unused] < 0).all()
        seen += batch.members
    assert sorted(seen) == [k for k, (a, b) in enumerate(pairs) if len(a.ids) and len(b.ids)]


@both_ways
def test_rows_look_like_those_of_pretraining(together):
    for batch in batches(random_pairs(60, 80), LIMIT, together):
        rows = batch.rows
        assert rows.tokens.shape[1] <= LIMIT
        for tokens, positions, segments in zip(*rows[:3], strict=True):
            size = segments.sum()
            assert (segments[:size] == 1).all() and (tokens[size:] == PAD).all()
            assert positions[:size].tolist() == list(range(size))
            if size:
                assert tokens[0] == BOS and (tokens == BOS).sum() == 1 and tokens[size - 1] == EOS
                assert (tokens == EOS).sum() == (2 if together else 1)


@both_ways
def test_batches_have_few_shapes(together):
    shapes = {
        tuple(array.shape for array in batch.rows)
        for batch in batches(random_pairs(2000, 200), 512, together)
    }
    assert len(shapes) <= 12


@both_ways
def test_few_pairs_make_small_batches(together):
    pairs = random_pairs(5, 30)
    (batch,) = batches(pairs, 512, together)
    assert len(batch.rows.source_indices) == 8 < len(batch.rows.tokens) + 1 <= 17


@both_ways
def test_used_parts_of_windows_have_context(together):
    for m, n in [(100, 90), (5, 200), (200, 5), (37, 37), (1000, 30), (30, 31), (1, 40)]:
        pair_windows = windows(m, n, LIMIT, together)
        for size, parts in zip((m, n), zip(*pair_windows, strict=True), strict=True):
            assert parts[0].first == 0 and parts[-1].last == size
            assert all(a.last == b.first for a, b in zip(parts, parts[1:], strict=False))
            for part in parts:
                margin = (part.end - part.start) // 4 - 1
                assert part.first - part.start >= min(margin, part.first)
                assert part.end - part.last >= min(margin, size - part.last)
        for source, target in pair_windows:
            lengths = [window.end - window.start for window in (source, target)]
            assert (sum(lengths) + 3 if together else max(lengths) + 2) <= LIMIT


def test_a_pair_that_fits_has_one_window():
    assert len(windows(20, LIMIT - 3 - 20, LIMIT, True)) == 1
    assert len(windows(20, LIMIT - 2 - 20, LIMIT, True)) > 1
    assert len(windows(LIMIT - 2, LIMIT - 2, LIMIT, False)) == 1
    assert len(windows(LIMIT - 1, 1, LIMIT, False)) > 1


def test_pieces_are_those_of_each_word_alone(vocabulary):
    sentence = ["Water", "\u200b", "water", "Water"]  # the second has no pieces
    pieces, empty = pieces_of([sentence, []], vocabulary)
    alone = [vocabulary.encode_batch([word])[0].tolist() for word in sentence]
    assert alone[1] == []
    assert pieces.ids.tolist() == sum(alone, [])
    assert pieces.words.tolist() == sum(([k] * len(ids) for k, ids in enumerate(alone)), [])
    assert len(empty.ids) == len(empty.words) == 0


def pairs_of(*sizes):
    side = [Pieces(np.arange(10, 10 + n, dtype=np.int32), np.arange(n)) for n in sizes]
    return list(zip(side, side, strict=True))


@both_ways
def test_few_short_pairs_join_a_batch_of_longer_pairs(together):
    """Only if this adds at most `BATCH_TOKENS` tokens of padding."""
    joined = list(batches(pairs_of(*range(1, 33)), 512, together))
    assert [len(batch.members) for batch in joined] == [32]
    # Each short pair gets 2 * (24 - 16) tokens of padding.
    max_joining = pair_batches.BATCH_TOKENS // (2 * (24 - 16))
    for count in (max_joining, max_joining + 1):
        all_batches = list(batches(pairs_of(*[16] * count, *[24] * 500), 512, together))
        short_batches = [batch for batch in all_batches if batch.rows.source_indices.shape[1] == 16]
        assert sum(len(batch.members) for batch in short_batches) == (
            0 if count == max_joining else count
        )
        assert sorted(i for batch in all_batches for i in batch.members) == list(range(count + 500))
        full = len(all_batches[-2].rows.source_indices)
        assert all(len(batch.members) == full for batch in all_batches[len(short_batches) : -1])


@both_ways
def test_pairs_in_windows_have_their_own_batches(together):
    short, long = batches(pairs_of(9, 1000, 25), 512, together)
    assert sorted(short.members) == [0, 2] and not short.windowed
    assert long.members == [1] and long.windowed


def test_words_keep_the_space_before_them():
    """Each word is tokenized as inside a sentence, even if a line's first word has no marker."""
    lines = [line for _, line in zip(range(300), phrasebook.text_lines("en"), strict=False)]
    tokenizer = modernbert(lines, 450)
    vocabulary = Vocabulary(tokenizer.to_str().encode())
    words = ["The", "cat", "sees", "the", "houses"]
    (pieces,) = pieces_of([words], vocabulary)
    joined = tokenizer.encode(" " + " ".join(words), add_special_tokens=False)
    assert vocabulary.native_ids[pieces.ids].tolist() == joined.ids
    assert pieces.words.tolist() == joined.word_ids
