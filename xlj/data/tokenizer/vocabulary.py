"""A vocabulary in xlj's layout of ids: text to ids and back."""

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from xlj.config import ConfigError
from xlj.data.rows.packing import Ragged
from xlj.data.tokenizer import sentencepiece_model, spans, tokenizer_json
from xlj.data.tokenizer.codec import Codec, Markers
from xlj.data.tokenizer.layout import BOS, EOS, PAD


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Pieces and their ids: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, `<mask>` last, whatever ids
    the file gives them (`native_ids`).

    Attributes:
      model: the bytes of a SentencePiece model, or of a Hugging Face tokenizer.json.
    """

    model: bytes = dataclasses.field(repr=False)

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """The vocabulary of a SentencePiece `.model` file or a Hugging Face tokenizer.json; a
        leading `~` is the home folder.

        Raises:
          ConfigError: if there is no such file, it is neither, or it cannot be brought into the
            layout (`sentencepiece_model.read`, `tokenizer_json.read`).
        """
        path = Path(path).expanduser()
        if not path.is_file():
            raise ConfigError(f"vocabulary {path}: there is no such file")
        try:
            vocabulary = cls(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"vocabulary {path} cannot be read: {error.strerror}") from None
        try:
            _ = vocabulary.pieces  # read now, so that the error names the file
        except ConfigError as error:
            raise ConfigError(f"vocabulary {path} {error}") from None
        return vocabulary

    @property
    def size(self) -> int:
        """Number of ids, specials and `<mask>` included."""
        return len(self.pieces)

    @property
    def mask(self) -> int:
        """The id of `<mask>`, the last; text never yields it."""
        return self.size - 1

    @cached_property
    def digest(self) -> str:
        """sha256 of the file, in hex."""
        return hashlib.sha256(self.model).hexdigest()

    @property
    def dtype(self) -> np.dtype:
        """The type of rows on disk: little-endian uint16 where all ids fit, else uint32."""
        return np.dtype("<u2" if self.size <= 1 << 16 else "<u4")

    @property
    def pieces(self) -> tuple[str, ...]:
        """The piece of every id, in order; the five specials by the layout's names."""
        return self._codec.pieces

    @property
    def native_ids(self) -> np.ndarray:
        """The file's own id of each of ours, int32 [size], a permutation: row i of an embedding is
        row `native_ids[i]` of the file's. Of SentencePiece models the identity: XLM-R's ids."""
        return self._codec.native_ids

    @property
    def native_specials(self) -> tuple[str, str, str, str, str]:
        """The file's names of `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>`."""
        return self._codec.native_specials

    @property
    def markers(self) -> Markers:
        """How pieces mark words: "sentencepiece", "byte_bpe" or "wordpiece" (`codec.Codec`)."""
        return self._codec.markers

    def encode(self, lines: Sequence[str]) -> Ragged:
        """Ids of many lines at once, without `<s>` and `</s>`; the fastest way."""
        return self._codec.encode(lines)

    def encode_with_spans(self, lines: Sequence[str]) -> tuple[Ragged, np.ndarray]:
        """The ids that `encode` gives, and the characters of its line that each piece stands for.

        Returns:
          The ids, and int32 [pieces, 2]: begin and end in characters of the line as it is, not
          normalised, without blanks at the ends. They are equal for a piece that stands for no
          character; of all others neither decreases along a line. Pieces that one character became
          each have all of it (`spans.tidy`).
        """
        ragged, found = self._codec.encode_with_spans(lines)
        alone = np.isin(ragged.ids, self.marks)
        return ragged, spans.tidy(lines, ragged.lengths, found, alone)

    def encode_batch(self, lines: Sequence[str]) -> list[np.ndarray]:
        """Ids of each line, int32, without `<s>` and `</s>`."""
        ragged = self.encode(lines)
        return np.split(ragged.ids, ragged.starts[1:]) if len(lines) else []

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these ids; `<s>`, `<pad>`, `</s>` and `<mask>` are left out."""
        silent = {BOS, PAD, EOS, self.mask}
        return self._codec.decode([int(i) for i in ids if int(i) not in silent])

    @cached_property
    def marks(self) -> np.ndarray:
        """Ids of pieces that are nothing but the mark of a word's start (or a space), int32."""
        alone = [i for i, piece in enumerate(self.pieces) if piece in ("\u2581", "\u0120")]
        return np.array(alone, np.int32)

    @cached_property
    def _codec(self) -> Codec:
        if tokenizer_json.is_tokenizer_json(self.model):
            return tokenizer_json.read(self.model)
        return sentencepiece_model.read(self.model)

    def __reduce__(self) -> tuple:
        return Vocabulary, (self.model,)
