"""The layout of ids of all vocabularies, which is XLM-R's, and the interface of tokenizers."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from xlj.data.ragged import Ragged

BOS, PAD, EOS, UNK = 0, 1, 2, 3
"""`<s>`, `<pad>`, `</s>`, `<unk>`. The pieces follow: piece i >= 3 of SentencePiece has id i + 1;
pieces of a tokenizer.json keep their order. `<mask>` is last."""

SEPARATOR = 4
"""The first piece, if the file has a token that separates a sentence and its translation:
EuroBERT's `<|parallel_sep|>`."""

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"

ROLES = ("bos", "pad", "eos", "unk", "mask")
"""The roles of `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>`, named as in `tokenizer_config.json`
(bos_token, and so on)."""

Markers = Literal["sentencepiece", "byte_bpe", "wordpiece"]


@dataclasses.dataclass(frozen=True)
class Codec:
    """A tokenizer in this layout, from any kind of file.

    Attributes:
      pieces: the piece of every id, including `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>`.
      native_ids: int32 [pieces], the file's id of each of our ids. -1 for `<pad>` or `<unk>` if the
        file has no such token, or uses the token of another role. Without -1, it is a permutation.
      native_specials: the file's names of `<s>`, `<pad>`, `</s>`, `<unk>`, `<mask>`; None if the
        file has no such token.
      native_special_ids: the file's ids of these tokens. `<pad>` may have the id of `</s>`; its
        entry in `native_ids` is -1 then.
      has_separator: whether piece `SEPARATOR` is a token between a sentence and its translation.
      markers: "sentencepiece" (a word starts with U+2581), "byte_bpe" (GPT-2's alphabet of bytes; a
        space is U+0120) or "wordpiece" (pieces within a word start with ##).
      of_text: int32, our id of each id that the library returns for a text. It is never a special
        id of the layout, except `<unk>`.
      word_prefix: text to put before a word so that it is encoded as a word within a sentence: a
        space, or nothing if the tokenizer adds one itself or does not mark the start of words.
      encode: returns the library's ids of each line, without `<s>` and `</s>`.
      encode_masked: returns our ids of a text in which each "<mask>" becomes `<mask>`.
      encode_with_spans: returns the same ids for each line, and the start and end of each piece in
        characters of the line, as the library reports them (see `spans.tidy`).
    """

    pieces: tuple[str, ...]
    native_ids: np.ndarray
    native_specials: tuple[str | None, ...]
    native_special_ids: tuple[int | None, ...]
    has_separator: bool
    markers: Markers
    of_text: np.ndarray
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


def of_native(native_ids: np.ndarray) -> np.ndarray:
    """Returns our id of each of the file's ids, int32, from the `native_ids` of a `Codec`."""
    has_native = np.flatnonzero(native_ids >= 0)
    ours = np.empty(len(has_native), np.int32)
    ours[native_ids[has_native]] = has_native
    return ours
