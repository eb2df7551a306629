"""A vocabulary that consists of pieces only."""

from typing import NamedTuple


class MarkedPieces(NamedTuple):
    """Pieces between the specials and `<mask>`; the first has id 4."""

    learned: tuple[str, ...]
    markers: str = "sentencepiece"

    @property
    def pieces(self) -> tuple[str, ...]:
        return ("<s>", "<pad>", "</s>", "<unk>", *self.learned, "<mask>")
