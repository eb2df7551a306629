"""The ids that every vocabulary of xlj shares, XLM-R's layout, and the contract of a tokenizer."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from xlj.data.ragged import Ragged

BOS, PAD, EOS, UNK = 0, 1, 2, 3
"""`<s>`, `<pad>`, `</s>`, `<unk>`. Then come the pieces: SentencePiece's piece i >= 3 has id i + 1,
those of a tokenizer.json are in its order. `<mask>` is last."""

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"

Markers = Literal["sentencepiece", "byte_bpe", "wordpiece"]


@dataclasses.dataclass(frozen=True)
class Codec:
    """A tokenizer, in this layout, whatever file it comes from.

    Attributes:
      pieces: of every id; `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>` by these names.
      native_ids: int32 [pieces], the file's own id of each of ours, a permutation.
      native_specials: what the file calls `<s>`, `<pad>`, `</s>`, `<unk>`, `<mask>`.
      markers: "sentencepiece" (a word starts with U+2581), "byte_bpe" (GPT-2's alphabet of bytes, a
        space is U+0120) or "wordpiece" (what goes on with a word starts with ##).
      of_text: int32, our id of each that the library gives a text: never one of the layout's
        specials, but `<unk>`.
      encode: the library's ids of each line, without `<s>` and `</s>`.
      encode_with_spans: of each line the same ids, and begin and end of each piece in characters
        of the line, as the library says (see `spans.tidy`).
    """

    pieces: tuple[str, ...]
    native_ids: np.ndarray
    native_specials: tuple[str, str, str, str, str]
    markers: Markers
    of_text: np.ndarray
    encode: Callable[[Sequence[str]], Ragged]
    encode_with_spans: Callable[[Sequence[str]], list[tuple[list[int], list[tuple[int, int]]]]]
