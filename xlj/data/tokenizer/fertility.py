"""Fertility: how many pieces a vocabulary splits a word into."""

from collections.abc import Sequence
from typing import NamedTuple

from xlj.data.text.words import WORD
from xlj.data.tokenizer.layout import UNK
from xlj.data.tokenizer.vocabulary import Vocabulary


class Fertility(NamedTuple):
    """Counts over some lines."""

    words: int
    pieces: int
    unknown: int
    """Pieces that are `<unk>`."""

    @property
    def pieces_per_word(self) -> float:
        """NaN without words."""
        return self.pieces / self.words if self.words else float("nan")

    @property
    def unknown_share(self) -> float:
        """The share of the pieces that are `<unk>`."""
        return self.unknown / self.pieces if self.pieces else 0.0


def measure(vocabulary: Vocabulary, lines: Sequence[str]) -> Fertility:
    """Counts words (`data.text.words.WORD`) and pieces of some lines."""
    ids = vocabulary.encode(lines).ids
    words = sum(1 for line in lines for _ in WORD.finditer(line))
    return Fertility(words, len(ids), int((ids == UNK).sum()))
