"""Measures the fertility of a vocabulary: the mean number of pieces per word."""

from collections.abc import Sequence
from typing import NamedTuple

from xlj.data.text.words import WORD
from xlj.data.tokenizer.layout import UNK
from xlj.data.tokenizer.vocabulary import Vocabulary


class Fertility(NamedTuple):
    """Counts of words and pieces in some lines.

    Attributes:
      words: number of words.
      pieces: number of pieces.
      unknown: number of pieces that are `<unk>`.
    """

    words: int
    pieces: int
    unknown: int

    @property
    def pieces_per_word(self) -> float:
        """The fertility; NaN without words."""
        return self.pieces / self.words if self.words else float("nan")

    @property
    def unknown_share(self) -> float:
        """The share of pieces that are `<unk>`; 0 without pieces."""
        return self.unknown / self.pieces if self.pieces else 0.0


def measure(vocabulary: Vocabulary, lines: Sequence[str]) -> Fertility:
    """Counts the words (`data.text.words.WORD`) and the pieces of some lines."""
    ids = vocabulary.encode(lines).ids
    words = sum(1 for line in lines for _ in WORD.finditer(line))
    return Fertility(words, len(ids), int((ids == UNK).sum()))
