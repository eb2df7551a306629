"""A vocabulary that is only pieces."""

from typing import NamedTuple


class MarkedPieces(NamedTuple):
    """Pieces behind the specials and before `<mask>`: the first has id 4."""

    learned: tuple[str, ...]
    markers: str = "sentencepiece"

    @property
    def pieces(self) -> tuple[str, ...]:
        return ("<s>", "<pad>", "</s>", "<unk>", *self.learned, "<mask>")
