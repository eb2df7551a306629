"""Chooses what is held out of training: no such sentence is trained on in the same language.

A line is *low* when its hash is below its language's threshold. Text that is low is held out. A
pair is held out when the side whose language has more lines is below the higher of the two
thresholds. One side decides, so that pairs which share it are held out together: of text that is
translated into many languages a few per cent are lost; if either side decided, almost all would be.

A side of a held-out pair that is not low is a *companion*. A line of text that is one is held out
too; a pair that is not held out but has a low side or a companion is dropped: holding it out as
well would make a companion of its other side, and so on.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from xlj.data.text.cleaning import BLANK, HASHES, line_hashes
from xlj.io import atomic

LIMIT = HASHES // 20
"""The highest threshold: at most 5 % of a language's lines are low."""

REASON = "shares a held-out sentence"
"""Why a pair with a low side or a companion is dropped."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """The rule for the lines of a language; small, so that workers can be sent it.

    Attributes:
      lines: how many it has.
      threshold: lines whose first hash is below are low.
      files: what `write_companions` wrote of this language.
    """

    lines: int
    threshold: int
    files: tuple[Path, ...] = ()

    @property
    def companions(self) -> np.ndarray:
        """uint64 [companions], their first hashes, in order."""
        return _read_companions(self.files)


def threshold(held_out_lines: int, lines: int) -> int:
    """The threshold below which are about `held_out_lines` of the `lines` of a language, and at
    most 5 %."""
    return min(LIMIT, HASHES * held_out_lines // max(lines, 1))


def split(hashes: Sequence[np.ndarray], rules: Sequence[Rule]) -> tuple[np.ndarray, np.ndarray]:
    """Which lines of text (one column) or pairs (two) are held out, and which are to be dropped
    because they share a sentence with what is held out: bool [lines] each. Hashes are of each
    column, uint64 [lines, 2], rules of its language."""
    decided = _decided(hashes, rules)
    sharing = np.zeros_like(decided)
    for column, rule in zip(hashes, rules, strict=True):
        first, companions = column[:, 0], rule.companions  # in order
        left, right = (np.searchsorted(companions, first, side) for side in ("left", "right"))
        sharing |= (first < rule.threshold) | (left < right)
    if len(hashes) == 1:
        return sharing, np.zeros_like(sharing)
    return decided, sharing & ~decided


def find_companions(
    blocks: Iterable[Sequence[Sequence[str]]], rules: Sequence[Rule]
) -> list[np.ndarray]:
    """The hashes of the companions among clean pairs, in order: uint64 [companions] of each side.
    Rules are of each column's language; their companions are not read."""
    found: list[list[np.ndarray]] = [[] for _ in rules]
    for columns in blocks:
        hashes = [line_hashes(column) for column in columns]
        decided = _decided(hashes, rules)
        for side, rule in enumerate(rules):
            first = hashes[side][decided, 0]
            found[side].append(first[(first >= rule.threshold) & (first != BLANK)])
    return [np.unique(np.concatenate(side)) for side in found]


def write_companions(file: Path, companions: np.ndarray) -> None:
    """Writes companions, little-endian uint64, for a `Rule` to read."""
    atomic.write(file, companions.astype("<u8").tobytes())


@lru_cache(maxsize=8)
def _read_companions(files: tuple[Path, ...]) -> np.ndarray:
    content = b"".join(file.read_bytes() for file in files)
    return np.unique(np.frombuffer(content, "<u8"))


def _decided(hashes: Sequence[np.ndarray], rules: Sequence[Rule]) -> np.ndarray:
    """Which lines or pairs are held out by the side that decides, the first of equal ones."""
    side = max(range(len(rules)), key=lambda side: rules[side].lines)
    return hashes[side][:, 0] < max(rule.threshold for rule in rules)
