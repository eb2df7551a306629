"""The ids that every vocabulary of xlj shares, XLM-R's layout, and the contract of a tokenizer."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from xlj.data.ragged import Ragged

BOS, PAD, EOS, UNK = 0, 1, 2, 3
"""`<s>`, `<pad>`, `</s>`, `<unk>`. Then come the pieces: SentencePiece's piece i >= 3 has id i + 1,
those of a tokenizer.json are in its order. `<mask>` is last."""

SEPARATOR = 4
"""The first of the pieces, where the file has a token of its own between a sentence and its
translation: EuroBERT's `<|parallel_sep|>`."""

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"

ROLES = ("bos", "pad", "eos", "unk", "mask")
"""The roles of `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>`, as `tokenizer_config.json` names them:
bos_token, and so on."""

Markers = Literal["sentencepiece", "byte_bpe", "wordpiece"]


@dataclasses.dataclass(frozen=True)
class Codec:
    """A tokenizer, in this layout, whatever file it comes from.

    Attributes:
      pieces: of every id; `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>` by these names.
      native_ids: int32 [pieces], the file's own id of each of ours; -1 of `<pad>` or `<unk>` where
        the file has none, or the same token as for another role. Without -1 it is a permutation.
      native_specials: what the file calls `<s>`, `<pad>`, `</s>`, `<unk>`, `<mask>`; None of a role
        without a token.
      native_special_ids: the file's ids of these. That of `<pad>` may be that of `</s>`, whereas
        its `native_ids` entry is -1 then.
      has_separator: whether piece `SEPARATOR` is a token between a sentence and its translation.
      markers: "sentencepiece" (a word starts with U+2581), "byte_bpe" (GPT-2's alphabet of bytes, a
        space is U+0120) or "wordpiece" (what goes on with a word starts with ##).
      of_text: int32, our id of each that the library gives a text: never one of the layout's
        specials, but `<unk>`.
      word_prefix: what a word needs before it to be encoded as behind another word: a space, or
        nothing where the tokenizer puts one there itself or has no mark of a word's start.
      encode: the library's ids of each line, without `<s>` and `</s>`.
      encode_masked: our ids of a text in which each "<mask>" is `<mask>`.
      encode_with_spans: of each line the same ids, and begin and end of each piece in characters
        of the line, as the library says (see `spans.tidy`).
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
    """The `word_prefix` of a tokenizer that cuts the text "a" into these pieces, and marks where
    words start with this character."""
    return "" if pieces_of_a and pieces_of_a[0].startswith(mark) else " "


def of_native(native_ids: np.ndarray) -> np.ndarray:
    """Our id of each of the file's ids, int32, from the `native_ids` of a `Codec`."""
    inside = np.flatnonzero(native_ids >= 0)
    ours = np.empty(len(inside), np.int32)
    ours[native_ids[inside]] = inside
    return ours
