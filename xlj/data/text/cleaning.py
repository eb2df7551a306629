"""Cleans every line before it is encoded, and hashes its text."""

import functools
import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from xlj.io.hashing import hash64

CLEANING = 4
"""Version of `clean`, `line_hashes`, `held_out`, and of where files are cut; part of the recipe, so
after a change rows are built again."""

HASHES = 1 << 64
BLANK = HASHES - 1
"""The hash of a blank line: the highest, so that it is below no threshold."""

_GROUP, _LARGE = 128, 1 << 20  # lines, and characters, that are hashed at a time
_POINTS = 0x110000  # of Unicode
_MARK = 128  # more than the letters that one is folded to
_ODD = 0x9E3779B97F4A7C15


def clean(line: str) -> str:
    """The line without blanks at its ends, and every run of Unicode whitespace (tabs, no-break and
    ideographic spaces, U+2028) made one space. Letters are left alone; SentencePiece normalises."""
    # Nearly all lines are clean already. What is printable has no whitespace but single spaces.
    if line.isprintable() and "  " not in line and line[:1] != " " and line[-1:] != " ":
        return line
    return " ".join(line.split())


def clean_all(lines: Sequence[str]) -> list[str]:
    """`clean` of each line; a group that is clean already is looked at as one text."""
    found: list[str] = []
    for group in _groups(lines):
        text = " ".join(filter(None, group))
        if text.isprintable() and "  " not in f" {text} ":
            found += group
        else:
            found += map(clean, group)
    return found


def line_hashes(lines: Sequence[str]) -> np.ndarray:
    """A hash of each clean line's text, the same on every machine: uint64 [lines].

    Copies that differ in Unicode's compatibility forms (NFKD), case or blanks hash alike. It
    decides what is held out; `hash64` of it, what a vocabulary trains on.
    """
    found = [_hashes(group) for group in _groups(lines)]
    return np.concatenate(found) if found else np.empty(0, np.uint64)


def text_hashes(lines: Sequence[str]) -> np.ndarray:
    """A hash of each line exactly as it is: uint64 [lines]."""
    digests = b"".join(blake2b(line.encode(), digest_size=8).digest() for line in lines)
    return np.frombuffer(digests, "<u8")


def _groups(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """The lines, so many at a time that what is made of them stays in the processor's cache."""
    for start in range(0, len(lines), _GROUP):
        group = lines[start : start + _GROUP]
        if sum(map(len, group)) < _LARGE:
            yield group
        else:  # long lines: what is made of them takes 17 times as much
            yield from ([line] for line in group)


def _hashes(lines: Sequence[str]) -> np.ndarray:
    """A polynomial of each line's folded letters modulo 2^64, all lines at once.

    A letter's part is looked up by its code point: NumPy folds a text in a tenth of the time that
    normalising it takes."""
    folding = _folding()
    points = _code_points(lines)
    kinds = folding.kinds.take(points)
    if kinds.max() >= _MARK and not _ordered(points):
        points = _code_points([unicodedata.normalize("NFKD", line) for line in lines])
        kinds = folding.kinds.take(points)
    ends = np.flatnonzero(points == ord("\n")) + 1
    starts = np.concatenate([[0], ends[:-1]])
    places = np.zeros(len(points) + 1, np.int64)
    np.cumsum(kinds % _MARK, out=places[1:])
    powers, inverse = _powers(
        1 << 16 if places[-1] < 1 << 16 else 1 << int(places[-1]).bit_length()
    )
    sums = np.add.reduceat(folding.values.take(points) * powers.take(places[:-1]), starts)
    hashes = hash64(sums * inverse[places[starts]], 0)
    hashes[places[ends] == places[starts]] = BLANK
    return hashes


def _code_points(lines: Sequence[str]) -> np.ndarray:
    """Those of all lines, int64, each with a line feed at its end."""
    joined = "\n".join(lines) + "\n"
    points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    return points.astype(np.int64)  # what looking up takes


def _ordered(points: np.ndarray) -> bool:
    """Whether all marks stand in the order that they have in NFKD."""
    folding = _folding()
    marks = folding.first[points[1:]]
    return not np.any((marks > 0) & (folding.last[points[:-1]] > marks))


class _Folding(NamedTuple):
    """Of each code point: the part of what it is folded to in a hash, uint64; how many letters that
    is, and `_MARK` more if it is a combining mark; the combining classes of the first and the last
    letter; uint8. Spaces and line feeds are nothing."""

    values: np.ndarray
    kinds: np.ndarray
    first: np.ndarray
    last: np.ndarray


@functools.lru_cache(maxsize=1)
def _folding() -> _Folding:
    alone = hash64(np.arange(_POINTS, dtype=np.uint64), 1)
    values, sizes = alone.copy(), np.ones(_POINTS, np.uint8)
    first, last = np.zeros(_POINTS, np.uint8), np.zeros(_POINTS, np.uint8)
    for point in itertools.chain(range(0x20000), range(0x2F800, 0x2FA20)):  # of others no form is
        letter = chr(point)
        folded = unicodedata.normalize("NFKD", letter).casefold()
        if folded != letter or letter in " \n":
            folded = unicodedata.normalize("NFKD", folded).casefold()
            kept = [ord(part) for part in folded if part not in " \n"]
            sizes[point] = len(kept)
            parts = (int(alone[part]) * pow(_ODD, i, HASHES) for i, part in enumerate(kept))
            values[point] = sum(parts) % HASHES
        if folded:
            first[point], last[point] = map(unicodedata.combining, (folded[0], folded[-1]))
    return _Folding(values, sizes + _MARK * (first > 0).astype(np.uint8), first, last)


@functools.lru_cache(maxsize=4)
def _powers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Powers of an odd number and of its inverse, uint64 [size] each."""
    odd, inverse = (np.full(size, number, np.uint64) for number in (_ODD, pow(_ODD, -1, HASHES)))
    odd[0] = inverse[0] = 1
    return np.cumprod(odd), np.cumprod(inverse)
