"""Cleans lines before they are encoded, hashes them, and finds words of running text."""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.io import files
from xlj.io.hashing import hash64

CLEANING = 5
"""Version of `clean`, of `line_hashes`, of the module `held_out`, and of the positions where files
are split. Row stores record it (`store.Manifest.recipe`), so xlj rebuilds rows if it changes."""

HASHES = 1 << 64
BLANK = HASHES - 1
"""The hash of a blank line. It is the highest hash, so it is not below any threshold."""

_GROUP_LINES, _GROUP_CHARACTERS = 128, 1 << 20  # maximum size of a group of lines
_CODE_POINTS = 0x110000  # the number of code points of Unicode
_COMBINING = 128  # flag of combining marks; no letter is folded to this many letters
_MULTIPLIER = 0x9E3779B97F4A7C15


def clean(line: str) -> str:
    """Removes whitespace at both ends of a line, and replaces each run of whitespace by one space.

    Whitespace is that of Unicode, which includes tabs, no-break spaces, ideographic spaces and
    U+2028. Other characters do not change here; SentencePiece normalizes them later.
    """
    # Most lines are clean already. In printable text, the only whitespace is the space.
    if line.isprintable() and "  " not in line and line[:1] != " " and line[-1:] != " ":
        return line
    return " ".join(line.split())


def clean_all(lines: Sequence[str]) -> list[str]:
    """Cleans each line. To save time, first checks whether a whole group of lines is clean."""
    cleaned: list[str] = []
    for group in _groups(lines):
        text = " ".join(filter(None, group))
        if text.isprintable() and "  " not in f" {text} ":
            cleaned += group
        else:
            cleaned += map(clean, group)
    return cleaned


def line_hashes(lines: Sequence[str]) -> np.ndarray:
    """Hashes clean lines; the hashes do not depend on the machine.

    Lines that differ only in Unicode's compatibility forms (NFKD), case or spaces have equal
    hashes. The hashes determine the held-out lines and, hashed again with `hash64`, the lines that
    a vocabulary is trained on.

    Returns:
      uint64 [lines].
    """
    hashes = [_hashes(group) for group in _groups(lines)]
    return np.concatenate(hashes) if hashes else np.empty(0, np.uint64)


def text_hashes(lines: Sequence[str]) -> np.ndarray:
    """Hashes lines without any normalization: uint64 [lines]."""
    digests = b"".join(blake2b(line.encode(), digest_size=8).digest() for line in lines)
    return np.frombuffer(digests, "<u8")


def _groups(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields lines in groups small enough for the processor's cache."""
    for start in range(0, len(lines), _GROUP_LINES):
        group = lines[start : start + _GROUP_LINES]
        if sum(map(len, group)) < _GROUP_CHARACTERS:
            yield group
        else:  # long lines: hashing needs arrays of 17 times the size of the text
            yield from ([line] for line in group)


def _hashes(lines: Sequence[str]) -> np.ndarray:
    """Computes a polynomial of the folded letters of each line modulo 2^64: uint64 [lines].

    Looks up the value of each letter by its code point. This takes a tenth of the time that
    normalizing the text takes."""
    folding = _folding()
    points = _code_points(lines)
    kinds = folding.kinds.take(points)
    if kinds.max() >= _COMBINING and not _has_ordered_marks(points):
        points = _code_points([unicodedata.normalize("NFKD", line) for line in lines])
        kinds = folding.kinds.take(points)
    ends = np.flatnonzero(points == ord("\n")) + 1
    starts = np.concatenate([[0], ends[:-1]])
    exponents = np.zeros(len(points) + 1, np.int64)  # folded letters before a code point
    np.cumsum(kinds % _COMBINING, out=exponents[1:])
    powers, inverse = _powers(
        1 << 16 if exponents[-1] < 1 << 16 else 1 << int(exponents[-1]).bit_length()
    )
    sums = np.add.reduceat(folding.values.take(points) * powers.take(exponents[:-1]), starts)
    hashes = hash64(sums * inverse[exponents[starts]], 0)
    hashes[exponents[ends] == exponents[starts]] = BLANK
    return hashes


def _code_points(lines: Sequence[str]) -> np.ndarray:
    """Returns the code points of all lines, int64, with a line feed after each line."""
    joined = "\n".join(lines) + "\n"
    points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    return points.astype(np.int64)  # `take` would convert another type in each call


def _has_ordered_marks(points: np.ndarray) -> bool:
    """Whether all combining marks are in the order that NFKD requires."""
    folding = _folding()
    classes = folding.first[points[1:]]
    return not np.any((classes > 0) & (folding.last[points[:-1]] > classes))


class _Folding(NamedTuple):
    """Folding (NFKD and `str.casefold`) of each code point; spaces and line feeds are removed.

    Attributes:
      values: the hash value of the folded letters of each code point, uint64 [code points].
      kinds: the number of folded letters, plus `_COMBINING` for a combining mark, uint8.
      first, last: combining classes of the first and the last folded letter, uint8.
    """

    values: np.ndarray
    kinds: np.ndarray
    first: np.ndarray
    last: np.ndarray


@functools.lru_cache(maxsize=1)
def _folding() -> _Folding:
    alone = hash64(np.arange(_CODE_POINTS, dtype=np.uint64), 1)
    values, sizes = alone.copy(), np.ones(_CODE_POINTS, np.uint8)
    first, last = np.zeros(_CODE_POINTS, np.uint8), np.zeros(_CODE_POINTS, np.uint8)
    # Folding changes no code point outside these ranges.
    for point in itertools.chain(range(0x20000), range(0x2F800, 0x2FA20)):
        letter = chr(point)
        folded = unicodedata.normalize("NFKD", letter).casefold()
        if folded != letter or letter in " \n":
            folded = unicodedata.normalize("NFKD", folded).casefold()
            letters = [ord(part) for part in folded if part not in " \n"]
            sizes[point] = len(letters)
            terms = (
                int(alone[part]) * pow(_MULTIPLIER, i, HASHES) for i, part in enumerate(letters)
            )
            values[point] = sum(terms) % HASHES
        if folded:
            first[point], last[point] = map(unicodedata.combining, (folded[0], folded[-1]))
    return _Folding(values, sizes + _COMBINING * (first > 0).astype(np.uint8), first, last)


@functools.lru_cache(maxsize=4)
def _powers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns powers of `_MULTIPLIER` and of its inverse modulo 2^64, uint64 [size] each."""
    odd, inverse = (
        np.full(size, number, np.uint64) for number in (_MULTIPLIER, pow(_MULTIPLIER, -1, HASHES))
    )
    odd[0] = inverse[0] = 1
    return np.cumprod(odd), np.cumprod(inverse)


SPACELESS = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan; Burmese; Khmer
    "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # kana, Han
)
"""Characters of scripts without spaces between words, in the syntax inside `[...]` of a regular
expression."""

WORD = re.compile(rf"[{SPACELESS}]{{1,2}}|[^\s{SPACELESS}]+")
"""Matches a word: the characters between spaces or, in scripts without spaces, one or two
characters. The rule for scripts without spaces is ours: their words have about two characters, and
the rule needs no dictionary."""


def read_texts(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Reads a text for each language (`read_lines`), by the names of the files.

    Files of the same name are one language.
    """
    texts: dict[str, list[str]] = {}
    for path in paths:
        texts.setdefault(path.name, []).extend(read_lines(path.expanduser()))
    return texts


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a file, cleaned as for training, without blank lines."""
    lines = [text for line in files.lines(path) if (text := clean(line))]
    if not lines:
        raise ConfigError(
            f"--text={path}: the file contains no text; expected one sentence per line"
        )
    return lines
