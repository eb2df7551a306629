"""What is held out of training, so that no sentence of it is trained on in the same language.

A line is *drawn* when its hash is below its language's threshold. A pair is held out when either
side is drawn; its other side is then a *companion*. A line of text that is drawn or a companion is
held out; a pair with a companion, neither side drawn, is dropped: holding it out as well would make
a companion of its other side, and so on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from xlj.data import atomic
from xlj.data.cleaning import BLANK, HASHES, line_hashes

LIMIT = HASHES // 20
"""The highest threshold: at most 5 % of a language's lines are drawn."""

REASON = "shares a held-out sentence"
"""Why a pair with a companion is dropped."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """What decides about the lines of a language; small, so that workers can be sent it.

    Attributes:
      threshold: lines whose first hash is below are drawn.
      files: what `write_companions` wrote of this language.
    """

    threshold: int
    files: tuple[Path, ...] = ()

    @property
    def companions(self) -> np.ndarray:
        """uint64 [companions], their first hashes, in order."""
        return _read_companions(self.files)


def threshold(held_out_lines: int, lines: int) -> int:
    """The threshold that draws about `held_out_lines` of the `lines` of a language, and at most
    5 %."""
    return min(LIMIT, HASHES * held_out_lines // max(lines, 1))


def drawn(hashes: Sequence[np.ndarray], thresholds: Sequence[int]) -> np.ndarray:
    """Which lines, or pairs by either side, are drawn: bool [lines].

    Args:
      hashes: uint64 [lines, 2] of each column.
      thresholds: of each column's language.
    """
    return _any(column[:, 0] < below for column, below in zip(hashes, thresholds, strict=True))


def split(hashes: Sequence[np.ndarray], rules: Sequence[Rule]) -> tuple[np.ndarray, np.ndarray]:
    """Which lines of text (one column) or pairs (two) are held out, and which are to be dropped
    because they share a sentence with what is held out: bool [lines] each.

    Args:
      hashes: uint64 [lines, 2] of each column.
      rules: of each column's language.
    """
    low = drawn(hashes, [rule.threshold for rule in rules])
    sharing = _any(_among(c[:, 0], r.companions) for c, r in zip(hashes, rules, strict=True)) & ~low
    return (low | sharing, np.zeros_like(low)) if len(hashes) == 1 else (low, sharing)


def find_companions(
    blocks: Iterable[Sequence[Sequence[str]]], thresholds: Sequence[int]
) -> list[np.ndarray]:
    """The hashes of the companions among pairs, in order: uint64 [companions] of each side.

    Args:
      blocks: clean pairs, in two columns.
      thresholds: of each column's language.
    """
    found: list[list[np.ndarray]] = [[] for _ in thresholds]
    for columns in blocks:
        hashes = [line_hashes(column) for column in columns]
        low = drawn(hashes, thresholds)
        for side, below in enumerate(thresholds):
            first = hashes[side][low, 0]
            found[side].append(first[(first >= below) & (first != BLANK)])
    return [np.unique(np.concatenate(side)) for side in found]


def write_companions(file: Path, companions: np.ndarray) -> None:
    """Writes companions, little-endian uint64, for a `Rule` to read."""
    atomic.write(file, companions.astype("<u8").tobytes())


@lru_cache(maxsize=8)
def _read_companions(files: tuple[Path, ...]) -> np.ndarray:
    content = b"".join(file.read_bytes() for file in files)
    return np.unique(np.frombuffer(content, "<u8"))


def _any(flags: Iterable[np.ndarray]) -> np.ndarray:
    return np.logical_or.reduce(list(flags))


def _among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Which values are in an array that is in order: bool [values]."""
    left, right = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return left < right
