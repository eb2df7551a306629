"""Held-out pairs are read from rows unchanged, without repeated sentences, and a sample of them is
always the same."""

import numpy as np

from xlj.data.ragged import Ragged
from xlj.data.rows import held_out_pairs
from xlj.data.tokenizer.layout import BOS, EOS, PAD


def lists(ragged):
    return [ids.tolist() for ids in np.split(ragged.ids, ragged.starts[1:])]


def random_sides(count, seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 9, count)
    return Ragged(random.integers(4, 300, lengths.sum()).astype(np.int32), lengths)


def test_all_pairs_with_a_repeated_sentence_are_omitted(tiny, store):
    first, second = map(lists, held_out_pairs.read(store, "en-sw", 10_000))
    examples = []
    numbers = np.arange(store.task("pairs.en-sw").held_out.rows)
    rows = store.read("pairs.en-sw", "held_out", numbers)["tokens"]
    for row in rows.tolist():  # a plain parser of `<s> A </s> B </s>`
        text = [token for token in row if token != PAD]
        while text:
            assert text.pop(0) == BOS
            sides = []
            for _ in range(2):
                end = text.index(EOS)
                sides.append(text[:end])
                text = text[end + 1 :]
            examples.append(sides)
    expected = [
        sides for sides in examples
        if all([other[k] for other in examples].count(sides[k]) == 1 for k in (0, 1))
    ]  # fmt: skip
    assert 2 <= len(expected) <= len(examples)
    assert [list(pair) for pair in zip(first, second, strict=True)] == expected


def test_a_sample_is_the_same_each_time(store):
    every, (few, _), (again, _) = (
        held_out_pairs.read(store, "en-de", count) for count in (10_000, 5, 5)
    )
    assert lists(few) == lists(again) and len(few.lengths) == 5
    places = [lists(every[0]).index(ids) for ids in lists(few)]
    assert places == sorted(places) and places != list(range(5))
