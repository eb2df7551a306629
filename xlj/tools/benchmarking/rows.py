"""Measures how fast rows are built from text, here sentence pairs of the phrasebook, and how fast
batches are read.
"""

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np

from xlj import phrasebook
from xlj.config import Config
from xlj.data.rows.batches import Batches
from xlj.data.rows.kinds.pairs import Pairs
from xlj.data.rows.preparing import open_rows, prepare_rows
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.retrieval.teaching import teachers_of
from xlj.tools.benchmarking.measurements import Measurement, Size, median_seconds

_LINES = 20_000


def prepare(config: Config, size: Size) -> Iterator[Measurement]:
    """Measures how fast one process builds rows from sentence pairs in memory.

    The time includes SentencePiece and packing.
    """
    pairs = itertools.islice(itertools.cycle(phrasebook.pair_lines("en-de")), _LINES)
    english, german = zip(*pairs, strict=True)
    pieces, dtype = vocabulary(), np.dtype(np.uint16)

    def call() -> None:
        Pairs().pack((pieces.encode(english), pieces.encode(german)), size.length, dtype)

    seconds = median_seconds(call, size.repeats)
    yield Measurement("prepare", "pairs", _LINES / seconds, "pairs/s")


def read(config: Config, size: Size) -> Iterator[Measurement]:
    """Measures how fast batches of finished rows are read, including checksums.

    Builds the rows first if they do not exist.
    """
    config, store = open_rows(config)
    batches = Batches(store or prepare_rows(config, teach=teachers_of(config)), config)
    steps, slots = range(50), np.arange(4096)  # slots beyond a batch are rows of the next steps
    for name, (_, length) in batches.shapes(0).items():

        def call(name: str = name) -> None:
            for step in steps:
                batches.read(name, step, slots)

        rate = len(steps) * len(slots) * length / median_seconds(call, size.repeats) / 1e6
        yield Measurement("read", name, rate, "million tokens/s")


_VOCABULARY_LINES, _PIECES = 3000, 1500


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
    pairs = list(itertools.islice(phrasebook.pair_lines("en-de"), _VOCABULARY_LINES))
    sampled = {"en": [a for a, _ in pairs], "de": [b for _, b in pairs]}
    weights = {"en": 1, "de": 1}
    return Vocabulary(vocabulary_training.train(sampled, weights, _PIECES, 1.0))
