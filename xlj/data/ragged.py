"""Sequences of token ids of any lengths, as two arrays.

Sentences before they are packed into rows, and the pieces of words: rows, tokenizers, interop and
retrieval pass them on in this form.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Sequences of token ids, end to end: int32 [sum of lengths], and int64 [sequences]."""

    ids: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> "Ragged":
        """The same sequences, out of lists."""
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        ids = itertools.chain.from_iterable(sequences)
        return cls(np.fromiter(ids, np.int32, int(lengths.sum())), lengths)

    @property
    def starts(self) -> np.ndarray:
        """Where each sequence starts in `ids`, int64 [sequences]."""
        return np.cumsum(self.lengths) - self.lengths

    def select(self, keep: np.ndarray) -> "Ragged":
        """The sequences at which `keep`, bool [sequences], is true."""
        return Ragged(self.ids[np.repeat(keep, self.lengths)], self.lengths[keep])
