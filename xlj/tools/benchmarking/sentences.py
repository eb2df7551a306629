"""Makes sentence pairs from the phrasebook for measurements, and a vocabulary for them."""

import itertools
from functools import cache

from xlj import phrasebook
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary

_LINES, _PIECES = 3000, 1500


def sentence_pairs(count: int) -> list[tuple[str, str]]:
    """Returns English-German sentence pairs.

    Each sentence joins two phrases, so that sentences have a typical length.
    """
    lines = list(itertools.islice(phrasebook.pair_lines("en-de"), 2 * count))
    both = zip(lines[::2], lines[1::2], strict=True)
    return [(f"{a[0]} {b[0]}", f"{a[1]} {b[1]}") for a, b in both]


@cache
def vocabulary() -> Vocabulary:
    """Trains a small English and German vocabulary."""
    pairs = list(itertools.islice(phrasebook.pair_lines("en-de"), _LINES))
    sampled = {"en": [a for a, _ in pairs], "de": [b for _, b in pairs]}
    weights = {"en": 1, "de": 1}
    return Vocabulary(vocabulary_training.train(sampled, weights, _PIECES, 1.0))
