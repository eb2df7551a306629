"""Chooses held-out lines and pairs, and removes their sentences from the training text.

**Text.** A line is *low* if its hash is below a threshold. The share `data.held_out_share` of all
possible hashes is below this threshold. Low lines of monolingual text are held out.

**Pairs.** A pair is held out if the sentence on its *deciding side* is low. The deciding side is
English or, in a pair without English, the language whose code comes first in the alphabet. Pairs
that share the sentence on the deciding side are thus held out together. If both sides could decide,
a text with translations into many languages would lose nearly all of its pairs.

**Companions.** The other sentence of a held-out pair is a *companion*, unless it is low. Lines of
monolingual text that are companions are also held out. A pair that is not held out, but contains a
low sentence or a companion, is dropped. If such a pair were held out, its other sentence would
become a companion, and would cause further pairs to be held out.

Take the languages in this order: English (`en`, `eng_Latn`, `en-GB`, ...), then the others by the
alphabetical order of their codes. Codes of one language (`language_of`) share their companions.
The held-out lines of a language depend only on its own text, and on its pairs with languages that
come before it in this order.

Sets of line hashes are sorted files, which are memory-mapped to look up hashes.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from xlj.config.languages import is_english
from xlj.data.text.cleaning import BLANK, HASHES
from xlj.io import atomic, storage
from xlj.io.storage import AnyPath

REASON = "shares a held-out sentence"
"""The reason under which dropped pairs with a low sentence or a companion are counted."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """The held-out rule of a language; small enough to send to worker processes.

    Attributes:
      share: the share of lines that are low, from 0 to 1.
      companions: a file with the hashes of companions (`write_hashes`); None if there are none.
    """

    share: float
    companions: AnyPath | None = None

    @property
    def threshold(self) -> np.uint64:
        """A line is low if its hash is below this number."""
        return np.uint64(min(BLANK, int(self.share * HASHES)))


def deciding_column(languages: Sequence[str]) -> int:
    """Returns the index of the language whose sentence decides whether a pair is held out."""
    return min(range(len(languages)), key=lambda i: (not is_english(languages[i]), languages[i]))


def split(
    languages: Sequence[str], hashes: Sequence[np.ndarray], rules: Sequence[Rule]
) -> tuple[np.ndarray, np.ndarray]:
    """Divides lines of text (one column) or records of several texts into training and held-out.

    Args:
      languages: the language of each column.
      hashes: the hashes of the lines of each column, uint64 [lines].
      rules: the rule of the language of each column.

    Returns:
      is_held_out: bool [lines].
      is_dropped: bool [lines], pairs that are not held out, but contain a low sentence or a
        companion; False for monolingual text.
    """
    deciding = deciding_column(languages)
    is_low = hashes[deciding] < rules[deciding].threshold
    has_held_out = np.zeros_like(is_low)
    for column, rule in zip(hashes, rules, strict=True):
        has_held_out |= column < rule.threshold
        has_held_out |= contains_hashes(open_hashes(rule.companions), column)
    if len(hashes) == 1:
        return has_held_out, np.zeros_like(has_held_out)
    return is_low, has_held_out & ~is_low


def find_companions(
    languages: Sequence[str], hashes: Sequence[np.ndarray], rule: Rule
) -> np.ndarray:
    """Returns the hashes of the companions in records of several texts.

    Args:
      languages: the language of each column.
      hashes: the hashes of each column, uint64 [records].
      rule: the held-out rule; only its threshold is used.

    Returns:
      The hashes of companions, which are in all columns but the deciding one: uint64 [companions].
    """
    deciding = deciding_column(languages)
    is_low = hashes[deciding] < rule.threshold
    others = [column[is_low] for i, column in enumerate(hashes) if i != deciding]
    other = np.concatenate(others)
    return other[other >= rule.threshold]


def write_hashes(folder: AnyPath, arrays: Iterable[np.ndarray]) -> AnyPath:
    """Writes the union of arrays of hashes to a file, without the hash of a blank line.

    Memory must hold all hashes.

    Args:
      folder: the folder of the file.
      arrays: uint64 arrays.

    Returns:
      The file, whose name is a hash of its content.
    """
    hashes = np.unique(np.concatenate([np.empty(0, np.uint64), *arrays]))
    content = hashes[hashes != BLANK].astype("<u8").tobytes()
    file = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.hashes"
    if not file.is_file():
        atomic.write(file, content)
    return file


@lru_cache(maxsize=16)
def open_hashes(file: AnyPath | None) -> np.ndarray:
    """Memory-maps the sorted hashes of a file, uint64; returns an empty array for None."""
    return np.empty(0, np.uint64) if file is None else storage.memory_map(file, "<u8")


def contains_hashes(sorted_set: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Tests which hashes are in a set.

    Args:
      sorted_set: the set, a sorted uint64 array.
      hashes: uint64 [n].

    Returns:
      bool [n].
    """
    if not len(sorted_set):
        return np.zeros(len(hashes), bool)
    indices = np.minimum(np.searchsorted(sorted_set, hashes), len(sorted_set) - 1)
    return sorted_set[indices] == hashes
