"""Finds the characters of a line that each of its pieces represents."""

from collections.abc import Sequence

import numpy as np

_BLANKS = [ord(c) for c in map(chr, range(0x3001)) if c.isspace()] + [0x200B, 0xFEFF]
"""Python's whitespace, and two characters without width that SentencePiece treats as spaces."""

_IS_BLANK = np.zeros(max(_BLANKS) + 2, bool)  # the last entry is for all higher code points
_IS_BLANK[_BLANKS] = True


def tidy(
    lines: Sequence[str], lengths: np.ndarray, spans: np.ndarray, markers: np.ndarray
) -> np.ndarray:
    """Unifies the spans of different tokenizers (ours).

    - A piece that only marks the start of a word (U+2581 alone) has an empty span.
    - If one character becomes several pieces (U+00BD, or bytes), each of them gets the whole
      character; SentencePiece gives it to the last piece only.
    - Blanks at both ends of a span are removed, so a piece of blanks has an empty span.

    Args:
      lengths: number of pieces of each line, int64 [lines].
      spans: int32 [pieces, 2], start and end in characters of the line, from the tokenizer.
      markers: whether a piece is only a marker, bool [pieces].

    Returns:
      int32 [pieces, 2]: start and end; equal for an empty span.
    """
    sizes = np.fromiter(map(len, lines), np.int64, len(lines)) + 1  # with a line feed
    offsets = np.repeat(np.cumsum(sizes) - sizes, lengths)
    begins, ends = spans[:, 0] + offsets, spans[:, 1] + offsets
    ends = np.where(markers, begins, ends)

    piece = np.arange(len(begins))
    full = np.where(begins < ends, piece, len(piece) - 1)
    full = np.minimum.accumulate(full[::-1])[::-1]  # the next piece that has characters
    shares = ~markers & (begins[full] == begins)
    ends = np.where(shares, ends[full], ends)

    text = np.frombuffer("\n".join([*lines, ""]).encode("utf-32-le", "surrogatepass"), "<u4")
    blank = _IS_BLANK[np.minimum(text, len(_IS_BLANK) - 1)]
    place = np.arange(len(text))
    after = np.minimum.accumulate(np.where(blank, len(text), place)[::-1])[::-1]
    before = np.maximum.accumulate(np.where(blank, -1, place))
    solid = begins < ends
    begins[solid] = np.minimum(after[begins[solid]], ends[solid])
    solid = begins < ends
    ends[solid] = before[ends[solid] - 1] + 1
    return np.stack([begins - offsets, ends - offsets], 1).astype(np.int32)
