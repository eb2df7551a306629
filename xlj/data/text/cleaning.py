"""Cleans every line before it is encoded, and hashes its text."""

import unicodedata
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

CLEANING = 2
"""Version of `clean`, `line_hashes` and `held_out`; part of the recipe, so after a change
rows are built again."""

HASHES = 1 << 64
BLANK = HASHES - 1
"""Both hashes of a blank line: the highest, so that it is below no threshold."""


def clean(line: str) -> str:
    """The line without blanks at its ends, and every run of Unicode whitespace (tabs, no-break and
    ideographic spaces, U+2028) made one space. Letters are left alone; SentencePiece normalises."""
    return " ".join(line.split())


def line_hashes(lines: Sequence[str]) -> np.ndarray:
    """Two independent hashes of each line's text, the same on every machine: uint64 [lines, 2].

    Lines are normalised (NFKC, case folded, whitespace collapsed), so that copies which differ in
    those hash alike. The first decides what is held out, the second what a vocabulary trains on.
    """
    texts = (clean(unicodedata.normalize("NFKC", line).casefold()) for line in lines)
    digests = [
        blake2b(text.encode(), digest_size=16).digest() if line else b"\xff" * 16
        for line, text in zip(lines, texts, strict=True)
    ]
    return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
