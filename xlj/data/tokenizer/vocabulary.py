"""A vocabulary in xlj's layout of ids: text to ids."""

import hashlib
import itertools
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from xlj.config import ConfigError
from xlj.data.ragged import Ragged
from xlj.data.tokenizer import sentencepiece_model, spans, tokenizer_json
from xlj.io import storage
from xlj.io.storage import AnyPath


class Vocabulary:
    """Pieces and their ids: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, `<mask>` last, whatever ids
    the file gives them.

    Attributes:
      model: the bytes of a SentencePiece model, or of a Hugging Face tokenizer.json.
      pieces, native_ids, native_specials, native_special_ids, has_separator, markers: those of its
        `Codec`. Row i of an embedding is row `native_ids[i]` of the file's; a row of -1 is internal
        to xlj, and not exported.
      size: number of ids, specials and `<mask>` included.
      native_size: number of ids of the file, without the internal ones.
      mask: the id of `<mask>`, the last; text never yields it.
      dtype: of rows on disk: little-endian uint16 where all ids fit, else uint32.

    Raises:
      ConfigError: if the file is neither, or cannot be brought into the layout
        (`sentencepiece_model.read`, `tokenizer_json.read`); the message goes on from its name.
    """

    def __init__(self, model: bytes):
        is_json = tokenizer_json.is_tokenizer_json(model)
        codec = tokenizer_json.read(model) if is_json else sentencepiece_model.read(model)
        self.model = model
        self.pieces, self.markers = codec.pieces, codec.markers
        self.native_ids, self.native_specials = codec.native_ids, codec.native_specials
        self.native_special_ids = codec.native_special_ids
        self.has_separator = codec.has_separator
        self.size = len(self.pieces)
        self.native_size = int((self.native_ids >= 0).sum())
        self.mask = self.size - 1
        self.dtype = np.dtype("<u2" if self.size <= 1 << 16 else "<u4")
        self._codec = codec

    @classmethod
    def load(cls, path: str | AnyPath) -> "Vocabulary":
        """The vocabulary of a SentencePiece `.model` file or a Hugging Face tokenizer.json; a
        leading `~` is the home folder; of a URL too.

        Raises:
          ConfigError: if the file cannot be read, or as the class; it names the file.
        """
        path = storage.place(path)
        try:
            return cls(path.read_bytes())
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(f"vocabulary {path} cannot be read: {reason}") from None
        except ConfigError as error:
            raise ConfigError(f"vocabulary {path} {error}") from None

    @cached_property
    def digest(self) -> str:
        """sha256 of the file, in hex."""
        return hashlib.sha256(self.model).hexdigest()

    def encode(self, lines: Sequence[str]) -> Ragged:
        """Ids of many lines at once, without `<s>` and `</s>`; the fastest way."""
        return self._ours(self._codec.encode(lines))

    def encode_words(self, words: Sequence[str]) -> list[np.ndarray]:
        """Ids of each word, int32, by itself but as it is inside of a sentence: with the mark of a
        word's start, also where the tokenizer gives none to the first word of a line (ModernBERT's;
        `add_prefix_space=True` of transformers does the same)."""
        prefix = self._codec.word_prefix
        return self.encode_batch([w if w[:1].isspace() else prefix + w for w in words])

    def text_of(self, index: int) -> str:
        """The text that a piece stands for, without the mark of a word's start; the piece itself
        where a byte-level piece holds a part of a character."""
        piece = self.pieces[index].lstrip("\u2581\u0120")
        if self.markers != "byte_bpe":
            return piece
        from tokenizers import decoders

        text: str = decoders.ByteLevel().decode([piece])
        return piece if "\ufffd" in text else text

    def encode_masked(self, text: str) -> np.ndarray:
        """Ids of a text, int32, in which each "<mask>" stands for a masked token, with the spaces
        around it that the tokenizer counts as part of it."""
        return self._codec.encode_masked(text)

    def encode_with_spans(self, lines: Sequence[str]) -> tuple[Ragged, np.ndarray]:
        """The ids that `encode` gives, and the characters of its line that each piece stands for.

        Returns:
          The ids, and int32 [pieces, 2]: begin and end in characters of the line as it is, not
          normalised, without blanks at the ends. They are equal for a piece that stands for no
          character; of all others neither decreases along a line. Pieces that one character became
          each have all of it (`spans.tidy`).
        """
        found = self._codec.encode_with_spans(lines)
        ragged = self._ours(Ragged.of([ids for ids, _ in found]))
        places = itertools.chain.from_iterable(line for _, line in found)
        numbers = np.fromiter(itertools.chain.from_iterable(places), np.int32).reshape(-1, 2)
        alone = np.isin(ragged.ids, self.marks)
        return ragged, spans.tidy(lines, ragged.lengths, numbers, alone)

    def encode_batch(self, lines: Sequence[str]) -> list[np.ndarray]:
        """Ids of each line, int32, without `<s>` and `</s>`."""
        ragged = self.encode(lines)
        return np.split(ragged.ids, ragged.starts[1:]) if len(lines) else []

    @cached_property
    def marks(self) -> np.ndarray:
        """Ids of pieces that are nothing but the mark of a word's start (or a space), int32."""
        alone = [i for i, piece in enumerate(self.pieces) if piece in ("\u2581", "\u0120")]
        return np.array(alone, np.int32)

    def _ours(self, found: Ragged) -> Ragged:
        return Ragged(self._codec.of_text.take(found.ids), found.lengths)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.model == other.model

    def __reduce__(self) -> tuple:
        return Vocabulary, (self.model,)
