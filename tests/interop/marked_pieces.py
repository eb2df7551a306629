"""A vocabulary for tests that has pieces and no tokenizer."""

from typing import NamedTuple


class MarkedPieces(NamedTuple):
    """Learned pieces between the four special tokens and `<mask>`; the first has id 4."""

    learned: tuple[str, ...]
    markers: str = "sentencepiece"

    @property
    def pieces(self) -> tuple[str, ...]:
        return ("<s>", "<pad>", "</s>", "<unk>", *self.learned, "<mask>")
