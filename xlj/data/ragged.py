"""Token sequences of different lengths, stored as two arrays.

`Vocabulary.encode` returns encoded lines in this form.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Concatenated sequences of token ids.

    Attributes:
      ids: all ids, int32 [sum of lengths].
      lengths: length of each sequence, int64 [sequences].
    """

    ids: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> "Ragged":
        """Builds a `Ragged` from lists of ids."""
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        ids = itertools.chain.from_iterable(sequences)
        return cls(np.fromiter(ids, np.int32, int(lengths.sum())), lengths)

    @property
    def starts(self) -> np.ndarray:
        """Start of each sequence in `ids`, int64 [sequences]."""
        return np.cumsum(self.lengths) - self.lengths

    def select(self, keep: np.ndarray) -> "Ragged":
        """Returns the sequences where `keep`, bool [sequences], is true."""
        return Ragged(self.ids[np.repeat(keep, self.lengths)], self.lengths[keep])
