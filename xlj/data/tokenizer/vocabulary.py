"""Vocabularies, which convert text to token ids in xlj's layout of ids.

The module reads SentencePiece models and tokenizer.json files, determines which characters of a
line each piece represents, and measures fertility: the mean number of pieces per word.
"""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import sentencepiece

from xlj.config import ConfigError
from xlj.data.text.cleaning import WORD
from xlj.data.tokenizer import tokenizer_json
from xlj.data.tokenizer.layout import MASK, SPECIALS, UNK, Codec, Ragged, word_prefix
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
        codec = tokenizer_json.read(model) if is_json else read_sentencepiece(model)
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
          (`tidy_spans`).
        """
        encoded = self._codec.encode_with_spans(lines)
        ragged = self._to_our_ids(Ragged.of([ids for ids, _ in encoded]))
        pairs = itertools.chain.from_iterable(line_spans for _, line_spans in encoded)
        raw_spans = np.fromiter(itertools.chain.from_iterable(pairs), np.int32).reshape(-1, 2)
        is_marker = np.isin(ragged.ids, self.marks)
        return ragged, tidy_spans(lines, ragged.lengths, raw_spans, is_marker)

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


_BLANKS = [ord(c) for c in map(chr, range(0x3001)) if c.isspace()] + [0x200B, 0xFEFF]
"""Python's whitespace, and two zero-width characters that SentencePiece treats as spaces."""

_IS_BLANK = np.zeros(max(_BLANKS) + 2, bool)  # by code point; the last entry is for all higher ones
_IS_BLANK[_BLANKS] = True


def tidy_spans(
    lines: Sequence[str], lengths: np.ndarray, spans: np.ndarray, markers: np.ndarray
) -> np.ndarray:
    """Converts the spans of different tokenizers to xlj's convention.

    - A piece that only marks the start of a word (U+2581 alone) has an empty span.
    - One character can become several pieces: U+00BD (½) is normalized to three characters, and
      rare characters become bytes. The span of each such piece is the whole character.
      SentencePiece itself assigns the character to the last piece only.
    - Blanks at both ends of a span are removed, so a piece that consists of blanks has an empty
      span.

    Args:
      lines: the lines.
      lengths: number of pieces of each line, int64 [lines].
      spans: start and end of each piece, in characters of the line, as the tokenizer returns them,
        int32 [pieces, 2].
      markers: whether each piece only marks the start of a word, bool [pieces].

    Returns:
      Start and end of each piece, in characters of the line, int32 [pieces, 2]. They are equal for
      an empty span.
    """
    sizes = np.fromiter(map(len, lines), np.int64, len(lines)) + 1  # + 1: a line feed
    offsets = np.repeat(np.cumsum(sizes) - sizes, lengths)
    begins, ends = spans[:, 0] + offsets, spans[:, 1] + offsets
    ends = np.where(markers, begins, ends)

    piece = np.arange(len(begins))
    next_full = np.where(begins < ends, piece, len(piece) - 1)
    next_full = np.minimum.accumulate(next_full[::-1])[::-1]  # the next piece with characters
    shares_character = ~markers & (begins[next_full] == begins)
    ends = np.where(shares_character, ends[next_full], ends)

    text = np.frombuffer("\n".join([*lines, ""]).encode("utf-32-le", "surrogatepass"), "<u4")
    is_blank = _IS_BLANK[np.minimum(text, len(_IS_BLANK) - 1)]
    index = np.arange(len(text))
    next_solid = np.minimum.accumulate(np.where(is_blank, len(text), index)[::-1])[::-1]
    last_solid = np.maximum.accumulate(np.where(is_blank, -1, index))
    has_characters = begins < ends
    begins[has_characters] = np.minimum(next_solid[begins[has_characters]], ends[has_characters])
    has_characters = begins < ends
    ends[has_characters] = last_solid[ends[has_characters] - 1] + 1
    return np.stack([begins - offsets, ends - offsets], 1).astype(np.int32)


def read_sentencepiece(model: bytes) -> Codec:
    """Reads a model; piece i >= 3 gets id i + 1, as in XLM-R's tokenizer.

    Args:
      model: the bytes of the file.

    Raises:
      ConfigError: if the bytes are not a SentencePiece model, if its first pieces are not `<unk>`,
        `<s>`, `</s>`, or if a piece is not UTF-8. The caller puts the file name before the message.
    """
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ConfigError(
            f"is neither a SentencePiece model nor a tokenizer.json ({error})"
        ) from None
    special_ids = [processor.unk_id(), processor.bos_id(), processor.eos_id()]
    if special_ids != [0, 1, 2]:
        raise ConfigError(
            f"has <unk>, <s>, </s> with the ids {special_ids}, but XLM-R's layout needs [0, 1, 2]; "
            "train the model with SentencePiece's defaults (--unk_id=0 --bos_id=1 --eos_id=2 "
            "--pad_id=-1)"
        )
    pieces = (*SPECIALS, *_learned_pieces(processor), MASK)

    our_ids = np.arange(1, processor.get_piece_size() + 1, dtype=np.int32)
    our_ids[0] = UNK

    def encode(lines: Sequence[str]) -> Ragged:
        # The public method with return_type="numpy" takes five times as long as this one.
        buffers = processor._processor._EncodeAsBufferBatch(  # type: ignore[attr-defined]
            list(lines), 1, None, False, -1, 0.1, False, False, False
        )
        copies = list(map(bytes, buffers))
        ids = np.frombuffer(b"".join(copies), np.int32)
        sizes = np.fromiter(map(len, copies), np.int64, len(copies))
        return Ragged(ids, sizes // ids.itemsize)

    def encode_with_spans(lines: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        if not lines:  # SentencePiece 0.2.2 fails on an empty list
            return []
        encoded = processor.encode(list(lines), num_threads=1, return_type="offset_mapping")
        return [(line["ids"], line["offsets"]) for line in encoded]

    def encode_masked(text: str) -> np.ndarray:
        encoded = encode(text.split(MASK))
        mask_positions = encoded.starts[1:]  # a mask comes before each part except the first
        return np.insert(our_ids.take(encoded.ids), mask_positions, len(pieces) - 1)

    return Codec(
        pieces=pieces,
        native_ids=np.arange(len(pieces), dtype=np.int32),
        native_specials=(*SPECIALS, MASK),
        native_special_ids=(*range(len(SPECIALS)), len(pieces) - 1),
        separator="",
        markers="sentencepiece",
        our_ids=our_ids,
        word_prefix=word_prefix(processor.encode("a", out_type=str), "\u2581"),
        encode=encode,
        encode_masked=encode_masked,
        encode_with_spans=encode_with_spans,
    )


def _learned_pieces(processor: sentencepiece.SentencePieceProcessor) -> Iterator[str]:
    for i in range(3, processor.get_piece_size()):
        try:
            yield processor.id_to_piece(i)
        except UnicodeDecodeError:
            raise ConfigError(f"is damaged: its piece {i} is not UTF-8") from None


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


def measure_fertility(vocabulary: Vocabulary, lines: Sequence[str]) -> Fertility:
    """Counts the words (`cleaning.WORD`) and the pieces of some lines."""
    ids = vocabulary.encode(lines).ids
    words = sum(1 for line in lines for _ in WORD.finditer(line))
    return Fertility(words, len(ids), int((ids == UNK).sum()))
