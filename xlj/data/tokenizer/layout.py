"""The layout of token ids of all vocabularies (that of XLM-R), and the interface of tokenizers.

A tokenizer returns encoded lines as `Ragged`: sequences of different lengths in two arrays.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Concatenated sequences of token ids.

    Attributes:
      ids: all ids, int32 [sum of lengths].
      lengths: length of each sequence, int64 [sequences].
    """

    ids: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> "Ragged":
        """Builds a `Ragged` from lists of ids."""
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        ids = itertools.chain.from_iterable(sequences)
        return cls(np.fromiter(ids, np.int32, int(lengths.sum())), lengths)

    @property
    def starts(self) -> np.ndarray:
        """Start of each sequence in `ids`, int64 [sequences]."""
        return np.cumsum(self.lengths) - self.lengths

    def select(self, keep: np.ndarray) -> "Ragged":
        """Returns the sequences where `keep`, bool [sequences], is true."""
        return Ragged(self.ids[np.repeat(keep, self.lengths)], self.lengths[keep])


BOS, PAD, EOS, UNK = 0, 1, 2, 3
"""The ids of `<s>`, `<pad>`, `</s>` and `<unk>`. The pieces follow: piece i >= 3 of a SentencePiece
model has id i + 1, and the pieces of a tokenizer.json keep their order. `<mask>` is last."""

SEPARATOR = 4
"""The id of the separator: the special token between a sentence and its translation in a family
of encoders (`Family.separator`). If the file has no such token, this is the id of the first
piece."""

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"

ROLES = ("bos", "pad", "eos", "unk", "mask")
"""The roles of `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>`, named as in `tokenizer_config.json`
(bos_token, and so on)."""

Markers = Literal["sentencepiece", "byte_bpe", "wordpiece"]


@dataclasses.dataclass(frozen=True)
class Codec:
    """A tokenizer, from any kind of file, with ids in the layout of xlj ("our ids").

    The ids that the file assigns to pieces are called native ids.

    Attributes:
      pieces: the piece of each of our ids, including `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>`.
      native_ids: the native id of each of our ids, int32 [pieces]. The entry of `<pad>` or `<unk>`
        is -1 if the file has no such token, or if this token also has another role, such as `</s>`.
        Without an entry of -1, the array is a permutation.
      native_specials: the names of the file for `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>`; None
        for a token that the file does not have.
      native_special_ids: the native ids of these tokens. `<pad>` may have the native id of `</s>`;
        its entry in `native_ids` is then -1.
      separator: the name of the file for piece `SEPARATOR`, if it is a separator; else empty.
      markers: how pieces mark words: "sentencepiece" (a word starts with U+2581), "byte_bpe" (the
        byte alphabet of GPT-2, in which a space is U+0120) or "wordpiece" (pieces within a word
        start with ##).
      our_ids: our id of each native id, int32 [native ids]. It is used for native ids that the
        library returns for a text. Of the special tokens, a text can contain only `<unk>`.
      word_prefix: text that is put before a word, so that the word is encoded like a word within a
        sentence. It is a space; it is empty if the tokenizer adds a space itself, or does not mark
        the start of words.
      encode: a function that returns the native ids of each line, without `<s>` and `</s>`.
      encode_masked: a function that returns our ids of a text, int32 [ids]. Each "<mask>" in the
        text becomes the special token `<mask>`.
      encode_with_spans: a function that returns, for each line, the native ids and the spans of the
        pieces. A span is a start and an end in characters of the line, as the library reports them
        (`vocabulary.tidy_spans` converts them).
    """

    pieces: tuple[str, ...]
    native_ids: np.ndarray
    native_specials: tuple[str | None, ...]
    native_special_ids: tuple[int | None, ...]
    separator: str
    markers: Markers
    our_ids: np.ndarray
    word_prefix: str
    encode: Callable[[Sequence[str]], Ragged]
    encode_masked: Callable[[str], np.ndarray]
    encode_with_spans: Callable[[Sequence[str]], list[tuple[list[int], list[tuple[int, int]]]]]


def word_prefix(pieces_of_a: Sequence[str], mark: str) -> str:
    """Returns the `word_prefix` of a tokenizer.

    Args:
      pieces_of_a: the pieces of the text "a".
      mark: the character that marks the start of words.
    """
    return "" if pieces_of_a and pieces_of_a[0].startswith(mark) else " "


def invert_native_ids(native_ids: np.ndarray) -> np.ndarray:
    """Returns our id of each native id, int32 [native ids], from the `native_ids` of a `Codec`."""
    has_native = np.flatnonzero(native_ids >= 0)
    ours = np.empty(len(has_native), np.int32)
    ours[native_ids[has_native]] = has_native
    return ours
