"""Cosines and ratio margins of given pairs, of vectors in memory or on disk.

Artetxe and Schwenk (2019), "Margin-based parallel corpus mining", as LASER scores pairs: the cosine
of a pair over the mean cosine of both sentences with their nearest neighbours on the other side,
among which is the partner itself.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from xlj.retrieval.nearest import NEIGHBOURS
from xlj.retrieval.search import LEAST_DENSITY, neighbours

CHUNK = 65536
"""Vectors that are compared at a time."""


class Vectors:
    """Vectors in several arrays, one after another, of which blocks are read.

    Args:
      parts: float [n, width] each, such as memory-mapped files.
      columns: which columns of the arrays are the vectors.
    """

    def __init__(self, parts: Sequence[np.ndarray], columns: slice = slice(None)):
        self._parts, self._columns = parts, columns

    def blocks(self, places: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """The vectors in order, at most `CHUNK` at a time.

        Args:
          places: which, int64, rising; None for all.
        """
        start = 0
        for part in self._parts:
            if places is None:
                own: np.ndarray | range = range(len(part))
            else:
                first, last = np.searchsorted(places, (start, start + len(part)))
                own = places[first:last] - start
            for begin in range(0, len(own), CHUNK):
                some = own[begin : begin + CHUNK]
                at = slice(some.start, some.stop) if isinstance(some, range) else some
                yield np.asarray(part[at][:, self._columns])
            start += len(part)


def cosines(source: Vectors, target: Vectors) -> np.ndarray:
    """The cosine of each pair, float32 [pairs]; NaN where a vector is zero. Both sides have arrays
    of the same lengths."""
    found = [np.zeros(0, np.float32)]
    for one, other in zip(source.blocks(), target.blocks(), strict=True):
        lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append((np.einsum("nd,nd->n", one, other) / lengths).astype(np.float32))
    return np.concatenate(found)


def densities(queries: Vectors, keys: Vectors, places: np.ndarray) -> np.ndarray:
    """The mean cosine of each query with its nearest keys, float32 [queries]. Every cosine is
    computed, a block of both sides at a time.

    Args:
      places: of the keys that are looked among, int64, rising: each sentence once.
    """
    found = [np.zeros(0, np.float32)]
    for block in queries.blocks():
        best = np.zeros((len(block), 0), np.float32)
        for some in keys.blocks(places):
            scores = neighbours(block, some, NEIGHBOURS).scores
            best = -np.sort(-np.concatenate([best, scores], 1), axis=1)[:, :NEIGHBOURS]
        found.append(best.mean(1) if best.size else np.zeros(len(block), np.float32))
    return np.concatenate(found)


def ratio(source: Vectors, target: Vectors, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The ratio margin of each pair, float32 [pairs]; NaN where a vector is zero.

    Args:
      sources, targets: where each distinct sentence of a side stands first, int64, rising: copies
        would be each other's neighbours.
    """
    own = densities(source, target, targets)
    others = densities(target, source, sources)
    return cosines(source, target) / np.maximum((own + others) / 2, LEAST_DENSITY)
