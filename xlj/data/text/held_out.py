"""Chooses what is held out of training: no such sentence is trained on in the same language.

A line is *low* when its hash is below a threshold, `data.held_out_share` of all hashes. Text that
is low is held out. A pair is held out when the side that decides is low: the one whose language
comes first, English before all others, these by their codes. One side decides, so that pairs which
share it are held out together: of text that is translated into many languages little is lost; if
either side decided, almost all would be.

The other side of a held-out pair, if it is not low, is a *companion*. A line of text that is one is
held out too; a pair that is not held out but has a low side or a companion is dropped: holding it
out as well would make a companion of its other side, and so on. What is held out of a language so
hangs on its own text and on pairs with languages before it, on no count, and on nothing else.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlj.data.text import hash_sets
from xlj.data.text.cleaning import BLANK, HASHES
from xlj.io.storage import AnyPath

REASON = "shares a held-out sentence"
"""Why a pair with a low side or a companion is dropped."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """The rule for the lines of a language; small, so that workers can be sent it.

    Attributes:
      share: of the lines that are low, from 0 to 1.
      companions: a file of hashes (`hash_sets`), or None.
    """

    share: float
    companions: AnyPath | None = None

    @property
    def threshold(self) -> np.uint64:
        """Lines whose hash is below are low."""
        return np.uint64(min(BLANK, int(self.share * HASHES)))


def decider(languages: Sequence[str]) -> int:
    """The column of a task that decides what is held out."""
    return min(range(len(languages)), key=lambda i: (languages[i] != "en", languages[i]))


def split(
    languages: Sequence[str], hashes: Sequence[np.ndarray], rules: Sequence[Rule]
) -> tuple[np.ndarray, np.ndarray]:
    """Which lines of text (one column) or pairs (two) are held out, and which are to be dropped
    because they share a sentence with what is held out: bool [lines] each. Hashes are of each
    column, uint64 [lines], rules of its language."""
    decided = hashes[decider(languages)] < rules[decider(languages)].threshold
    sharing = np.zeros_like(decided)
    for column, rule in zip(hashes, rules, strict=True):
        sharing |= column < rule.threshold
        sharing |= hash_sets.has(hash_sets.opened(rule.companions), column)
    if len(hashes) == 1:
        return sharing, np.zeros_like(sharing)
    return decided, sharing & ~decided


def companions(languages: Sequence[str], hashes: Sequence[np.ndarray], rule: Rule) -> np.ndarray:
    """The hashes of the companions among pairs, all on the side that does not decide: uint64
    [companions]. The rule's own companions are not read."""
    first = decider(languages)
    other = hashes[1 - first][hashes[first] < rule.threshold]
    return other[other >= rule.threshold]
