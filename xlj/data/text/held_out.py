"""Chooses held-out lines and pairs; no held-out sentence is trained on in the same language.

A line is *low* if its hash is below a threshold, which is `data.held_out_share` of all hashes. Low
lines of text are held out. A pair is held out if its deciding side is low. The deciding side is the
language that comes first: English before all others, and the others in the order of their codes.
Pairs that share the deciding side are then held out together. If either side could decide, nearly
all of a text with translations into many languages would be lost.

The other side of a held-out pair, if it is not low, is a *companion*. Lines of text that are
companions are held out, too. A pair that is not held out but contains a low side or a companion is
dropped. Holding it out would make its other side a companion, and so on. What is held out of a
language thus depends only on its own text and on pairs with earlier languages, not on any count.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlj.data.text import hash_sets
from xlj.data.text.cleaning import BLANK, HASHES
from xlj.io.storage import AnyPath

REASON = "shares a held-out sentence"
"""Why a pair that contains a low side or a companion is dropped."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """The held-out rule of a language; small enough to send to workers.

    Attributes:
      share: the share of lines that are low, from 0 to 1.
      companions: a file of hashes (`hash_sets`), or None.
    """

    share: float
    companions: AnyPath | None = None

    @property
    def threshold(self) -> np.uint64:
        """Lines with a hash below it are low."""
        return np.uint64(min(BLANK, int(self.share * HASHES)))


def decider(languages: Sequence[str]) -> int:
    """Returns the column of a task that decides what is held out."""
    return min(range(len(languages)), key=lambda i: (languages[i] != "en", languages[i]))


def split(
    languages: Sequence[str], hashes: Sequence[np.ndarray], rules: Sequence[Rule]
) -> tuple[np.ndarray, np.ndarray]:
    """Divides lines of text (one column) or pairs (two columns) into training and held-out lines.

    Args:
      hashes: hashes of each column, uint64 [lines].
      rules: the rule of each column's language.

    Returns:
      Which lines are held out, and which are dropped because they share a sentence with a held-out
      line: bool [lines] each.
    """
    decided = hashes[decider(languages)] < rules[decider(languages)].threshold
    sharing = np.zeros_like(decided)
    for column, rule in zip(hashes, rules, strict=True):
        sharing |= column < rule.threshold
        sharing |= hash_sets.has(hash_sets.open_set(rule.companions), column)
    if len(hashes) == 1:
        return sharing, np.zeros_like(sharing)
    return decided, sharing & ~decided


def companions(languages: Sequence[str], hashes: Sequence[np.ndarray], rule: Rule) -> np.ndarray:
    """Returns the hashes of the companions in pairs: uint64 [companions].

    They are all on the side that does not decide. The rule's own companions are not used.
    """
    first = decider(languages)
    other = hashes[1 - first][hashes[first] < rule.threshold]
    return other[other >= rule.threshold]
