"""Converts text to token ids, with a vocabulary in xlj's layout of ids."""

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
    """A tokenizer: pieces and their ids in the layout of xlj.

    The ids of `<s>`, `<pad>`, `</s>` and `<unk>` are 0, 1, 2 and 3; `<mask>` is last. The ids in
    the file, called native ids, may differ.

    Args:
      model: the bytes of a SentencePiece model, or of a Hugging Face tokenizer.json.

    Attributes:
      model: the bytes of the file.
      pieces, native_ids, native_specials, native_special_ids, separator, markers: the
        attributes of `layout.Codec` with these names. Row i of xlj's embeddings is row
        `native_ids[i]` of the embeddings of the original model. Rows with -1 are internal to xlj
        and are not exported.
      size: number of ids, including special tokens and `<mask>`.
      native_size: number of native ids, which do not include ids that are internal to xlj.
      mask: the id of `<mask>`, which is the last id; only `encode_masked` returns it.
      dtype: type of the ids in rows on disk: little-endian uint16 if all ids fit, else uint32.

    Raises:
      ConfigError: if the bytes are neither a SentencePiece model nor a tokenizer.json, or if the
        tokenizer cannot be converted to the layout. The caller puts the file name before the
        message.
    """

    def __init__(self, model: bytes):
        is_json = tokenizer_json.is_tokenizer_json(model)
        codec = tokenizer_json.read(model) if is_json else sentencepiece_model.read(model)
        self.model = model
        self.pieces, self.markers = codec.pieces, codec.markers
        self.native_ids, self.native_specials = codec.native_ids, codec.native_specials
        self.native_special_ids = codec.native_special_ids
        self.separator = codec.separator
        self.size = len(self.pieces)
        self.native_size = int((self.native_ids >= 0).sum())
        self.mask = self.size - 1
        self.dtype = np.dtype("<u2" if self.size <= 1 << 16 else "<u4")
        self._codec = codec

    @classmethod
    def load(cls, path: str | AnyPath) -> "Vocabulary":
        """Loads a SentencePiece `.model` file or a Hugging Face tokenizer.json.

        Args:
          path: a path, in which a leading `~` is the home folder, or a URL.

        Raises:
          ConfigError: if the file cannot be read, or its tokenizer cannot be converted to the
            layout of xlj; the message names the file.
        """
        path = storage.to_path(path)
        try:
            return cls(path.read_bytes())
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(f"vocabulary {path} cannot be read: {reason}") from None
        except ConfigError as error:
            raise ConfigError(f"vocabulary {path} {error}") from None

    @cached_property
    def digest(self) -> str:
        """The sha256 of the file, as hex digits."""
        return hashlib.sha256(self.model).hexdigest()

    def encode(self, lines: Sequence[str]) -> Ragged:
        """Encodes lines without `<s>` and `</s>`; this is the fastest method for many lines."""
        return self._to_our_ids(self._codec.encode(lines))

    def encode_words(self, words: Sequence[str]) -> list[np.ndarray]:
        """Encodes each word separately, int32, as if the word were within a sentence.

        All words get the mark of a word's start, as with `add_prefix_space=True` in transformers.
        Without this, some tokenizers, such as that of ModernBERT, omit the mark of the first word.
        """
        prefix = self._codec.word_prefix
        return self.encode_batch([w if w[:1].isspace() else prefix + w for w in words])

    def text_of(self, index: int) -> str:
        """Returns the text of piece `index`, without the mark of a word's start.

        A byte-level piece that contains only a part of a character is not decoded.
        """
        piece = self.pieces[index].lstrip("\u2581\u0120")
        if self.markers != "byte_bpe":
            return piece
        from tokenizers import decoders

        text: str = decoders.ByteLevel().decode([piece])
        return piece if "\ufffd" in text else text

    def encode_masked(self, text: str) -> np.ndarray:
        """Encodes a text, int32, in which each "<mask>" becomes the id of `<mask>`.

        If the tokenizer counts spaces around a mask as part of the mask, these spaces are removed.
        """
        return self._codec.encode_masked(text)

    def encode_with_spans(self, lines: Sequence[str]) -> tuple[Ragged, np.ndarray]:
        """Encodes lines like `encode`, and returns the characters that each piece represents.

        Returns:
          The ids; and the start and end of each piece, int32 [pieces, 2], in characters of the line
          before normalization, without blanks at both ends. Start and end are equal for a piece
          without characters. For all other pieces of a line, starts and ends never decrease. If one
          character becomes several pieces, each of these pieces has the whole character
          (`spans.tidy`).
        """
        encoded = self._codec.encode_with_spans(lines)
        ragged = self._to_our_ids(Ragged.of([ids for ids, _ in encoded]))
        pairs = itertools.chain.from_iterable(line_spans for _, line_spans in encoded)
        raw_spans = np.fromiter(itertools.chain.from_iterable(pairs), np.int32).reshape(-1, 2)
        is_marker = np.isin(ragged.ids, self.marks)
        return ragged, spans.tidy(lines, ragged.lengths, raw_spans, is_marker)

    def encode_batch(self, lines: Sequence[str]) -> list[np.ndarray]:
        """Encodes each line, int32, without `<s>` and `</s>`."""
        ragged = self.encode(lines)
        return np.split(ragged.ids, ragged.starts[1:]) if len(lines) else []

    @cached_property
    def marks(self) -> np.ndarray:
        """Ids of pieces that consist only of the mark of a word's start (or a space), int32."""
        ids = [i for i, piece in enumerate(self.pieces) if piece in ("\u2581", "\u0120")]
        return np.array(ids, np.int32)

    def _to_our_ids(self, native: Ragged) -> Ragged:
        return Ragged(self._codec.our_ids.take(native.ids), native.lengths)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.model == other.model

    def __reduce__(self) -> tuple:
        return Vocabulary, (self.model,)
