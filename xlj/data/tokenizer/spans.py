"""Determines which characters of a line each piece represents."""

from collections.abc import Sequence

import numpy as np

_BLANKS = [ord(c) for c in map(chr, range(0x3001)) if c.isspace()] + [0x200B, 0xFEFF]
"""Python's whitespace, and two zero-width characters that SentencePiece treats as spaces."""

_IS_BLANK = np.zeros(max(_BLANKS) + 2, bool)  # by code point; the last entry is for all higher ones
_IS_BLANK[_BLANKS] = True


def tidy(
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
