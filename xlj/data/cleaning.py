"""What happens to every line before it is encoded, and which lines are held out of training."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from hashlib import blake2b

CLEANING = 1
"""Version of `clean` and `line_hashes`; part of the recipe, so a change makes rows again."""

HASHES = 1 << 64
HELD_OUT_LIMIT = HASHES // 20  # at most 5 % of a language


def clean(line: str) -> str:
    """The line without blanks at its ends, and every run of Unicode whitespace (tabs, no-break and
    ideographic spaces, U+2028) made one space. Letters are left alone; SentencePiece normalises."""
    return " ".join(line.split())


def line_hashes(line: str) -> tuple[int, int]:
    """Two independent hashes in [0, 2^64) of a line's text, the same on every machine.

    The line is normalised (NFKC, case folded, whitespace collapsed), so that copies which differ in
    those hash alike. The first decides what is held out, the second what a vocabulary trains on.
    """
    text = clean(unicodedata.normalize("NFKC", line).casefold())
    digest = blake2b(text.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def held_out_threshold(held_out_lines: int, lines: int) -> int:
    """Lines of a language whose first hash is below this are held out: about `held_out_lines` of
    its `lines`, and at most 5 %."""
    return min(HELD_OUT_LIMIT, HASHES * held_out_lines // max(lines, 1))


def held_out(columns: Sequence[Sequence[str]], thresholds: Sequence[int]) -> list[bool]:
    """Which lines (one column) or pairs (two: if either side is) of clean text are held out."""
    flags = [
        [bool(line) and line_hashes(line)[0] < threshold for line in column]
        if threshold
        else [False] * len(column)
        for column, threshold in zip(columns, thresholds, strict=True)
    ]
    return [any(sides) for sides in zip(*flags, strict=True)]
