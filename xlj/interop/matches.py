"""The old rows that the rows of a new vocabulary start from."""

import dataclasses

import numpy as np

from xlj.data.rows.packing import Ragged

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
