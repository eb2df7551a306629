"""Cleans lines before they are encoded, and hashes them."""

import functools
import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from xlj.io.hashing import hash64

CLEANING = 4
"""Version of `clean`, `line_hashes`, `held_out`, and of where files are split. It is part of the
recipe, so a change rebuilds rows."""

HASHES = 1 << 64
BLANK = HASHES - 1
"""The hash of a blank line: the highest, so that it is not below any threshold."""

_GROUP, _LARGE = 128, 1 << 20  # the most lines, and characters, that are hashed together
_POINTS = 0x110000  # code points of Unicode
_MARK = 128  # more than the number of letters that any letter is folded to
_ODD = 0x9E3779B97F4A7C15


def clean(line: str) -> str:
    """Removes blanks at both ends of a line, and replaces every run of whitespace by one space.

    Whitespace is Unicode's (tabs, no-break and ideographic spaces, U+2028). Letters do not change;
    SentencePiece normalizes them.
    """
    # Nearly all lines are clean already. Printable text has no whitespace except single spaces.
    if line.isprintable() and "  " not in line and line[:1] != " " and line[-1:] != " ":
        return line
    return " ".join(line.split())


def clean_all(lines: Sequence[str]) -> list[str]:
    """Cleans each line; checks a group of lines as one text first, which is faster."""
    cleaned: list[str] = []
    for group in _groups(lines):
        text = " ".join(filter(None, group))
        if text.isprintable() and "  " not in f" {text} ":
            cleaned += group
        else:
            cleaned += map(clean, group)
    return cleaned


def line_hashes(lines: Sequence[str]) -> np.ndarray:
    """Hashes the text of each clean line, the same on every machine: uint64 [lines].

    Copies that differ only in Unicode's compatibility forms (NFKD), case or blanks have equal
    hashes. The hash decides what is held out. `hash64` of it chooses the lines that a vocabulary is
    trained on.
    """
    hashes = [_hashes(group) for group in _groups(lines)]
    return np.concatenate(hashes) if hashes else np.empty(0, np.uint64)


def text_hashes(lines: Sequence[str]) -> np.ndarray:
    """Hashes each line exactly as it is: uint64 [lines]."""
    digests = b"".join(blake2b(line.encode(), digest_size=8).digest() for line in lines)
    return np.frombuffer(digests, "<u8")


def _groups(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields lines in groups small enough for the processor's cache."""
    for start in range(0, len(lines), _GROUP):
        group = lines[start : start + _GROUP]
        if sum(map(len, group)) < _LARGE:
            yield group
        else:  # arrays of a line need 17 times its size
            yield from ([line] for line in group)


def _hashes(lines: Sequence[str]) -> np.ndarray:
    """Computes a polynomial of each line's folded letters modulo 2^64, for all lines together.

    Looks up the value of each letter by its code point: NumPy does this in a tenth of the time of
    normalizing the text."""
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
    """Returns the code points of all lines, int64, with a line feed after each line."""
    joined = "\n".join(lines) + "\n"
    points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    return points.astype(np.int64)  # the type that `take` needs


def _ordered(points: np.ndarray) -> bool:
    """Whether all combining marks are in the order of NFKD."""
    folding = _folding()
    marks = folding.first[points[1:]]
    return not np.any((marks > 0) & (folding.last[points[:-1]] > marks))


class _Folding(NamedTuple):
    """Properties of each code point. Spaces and line feeds are folded to nothing.

    Attributes:
      values: the hash value of the letters that it is folded to, uint64.
      kinds: the number of these letters, plus `_MARK` for a combining mark, uint8.
      first, last: combining classes of the first and the last of its NFKD letters, uint8.
    """

    values: np.ndarray
    kinds: np.ndarray
    first: np.ndarray
    last: np.ndarray


@functools.lru_cache(maxsize=1)
def _folding() -> _Folding:
    alone = hash64(np.arange(_POINTS, dtype=np.uint64), 1)
    values, sizes = alone.copy(), np.ones(_POINTS, np.uint8)
    first, last = np.zeros(_POINTS, np.uint8), np.zeros(_POINTS, np.uint8)
    # Code points outside these ranges have no other form.
    for point in itertools.chain(range(0x20000), range(0x2F800, 0x2FA20)):
        letter = chr(point)
        folded = unicodedata.normalize("NFKD", letter).casefold()
        if folded != letter or letter in " \n":
            folded = unicodedata.normalize("NFKD", folded).casefold()
            letters = [ord(part) for part in folded if part not in " \n"]
            sizes[point] = len(letters)
            parts = (int(alone[part]) * pow(_ODD, i, HASHES) for i, part in enumerate(letters))
            values[point] = sum(parts) % HASHES
        if folded:
            first[point], last[point] = map(unicodedata.combining, (folded[0], folded[-1]))
    return _Folding(values, sizes + _MARK * (first > 0).astype(np.uint8), first, last)


@functools.lru_cache(maxsize=4)
def _powers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns powers of an odd number and of its inverse, uint64 [size] each."""
    odd, inverse = (np.full(size, number, np.uint64) for number in (_ODD, pow(_ODD, -1, HASHES)))
    odd[0] = inverse[0] = 1
    return np.cumprod(odd), np.cumprod(inverse)
