"""Fertility counts words, pieces and unknown pieces."""

import itertools
import math

from xlj import phrasebook
from xlj.data.tokenizer import fertility, vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary


def test_words_pieces_and_unknown_pieces_are_counted():
    lines = {"en": list(itertools.islice(phrasebook.text_lines("en"), 300))}
    vocabulary = Vocabulary(vocabulary_training.train(lines, {"en": 1}, 200, 1.0))
    text = ["the cook opens the door", "Ж 我们今天", ""]
    counts = fertility.measure(vocabulary, text)
    pieces = [len(ids) for ids in vocabulary.encode_batch(text)]
    assert counts.words == 5 + 3
    assert counts.pieces == sum(pieces)
    assert counts.unknown == 2  # runs of unknown characters
    assert counts.pieces_per_word == sum(pieces) / 8
    assert counts.unknown_share == 2 / sum(pieces)


def test_no_text_has_no_fertility():
    vocabulary = Vocabulary(vocabulary_training.train({"en": ["a b c"] * 9}, {"en": 1}, 9, 1.0))
    counts = fertility.measure(vocabulary, [])
    assert math.isnan(counts.pieces_per_word)
    assert counts.unknown_share == 0
