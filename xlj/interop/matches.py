"""The old rows that the rows of a new vocabulary start from, and a table of their shares."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from xlj.data.rows.packing import Ragged
from xlj.data.rows.report import align

RULES = ("special", "exact", "normalised", "dictionary", "accents", "place", "pieces", "none")
"""How a row was found. `vocabulary_matching` and `vocabulary_extension` say what they mean."""


@dataclasses.dataclass(frozen=True)
class Matches:
    """For every new id, the old ids whose mean it starts from.

    Attributes:
      sources: a sequence of old ids for each new id: none, one, or several (`pieces`).
      rules: int8 [new ids], indices into `RULES`; `none` where there are no sources.
    """

    sources: Ragged
    rules: np.ndarray

    @property
    def old_ids(self) -> np.ndarray:
        """The one old id of each new id, -1 where there is none or several: int32 [new ids]."""
        found = np.full(len(self.rules), -1, np.int32)
        single = self.sources.lengths == 1
        found[single] = self.sources.ids[self.sources.starts[single]]
        return found

    def by_rule(self, counts: np.ndarray) -> np.ndarray:
        """The sum of counts, int64 [new ids], over the ids that each rule matched: int64 [rules],
        in the order of `RULES`."""
        return np.array([counts[self.rules == rule].sum() for rule in range(len(RULES))])


def table(matches: Matches, counts: Mapping[str, np.ndarray]) -> str:
    """Shares by rule in percent, for people: a line for the vocabulary's pieces, one for each
    language's tokens. Rules that matched no piece are left out.

    Args:
      counts: of each language, how often each new id is in its text: int64 [new ids].
    """
    pieces = np.ones(len(matches.rules), np.int64)
    sums = {name: matches.by_rule(n) for name, n in {"vocabulary": pieces, **counts}.items()}
    used = np.flatnonzero(sums["vocabulary"])
    lines = [["", "in all", *(f"{RULES[rule]} %" for rule in used)]]
    for name, found in sums.items():
        percents = 100 * found[used] / max(1, found.sum())
        lines.append([name, f"{found.sum():,}", *(f"{percent:.2f}" for percent in percents)])
    return "\n".join(align(lines))
