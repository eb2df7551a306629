"""Computes cosines and ratio margins of sentence pairs, whose vectors are in memory or on disk.

The ratio margin is the cosine of a pair, divided by the mean cosine of both sentences with their
four nearest neighbours on the other side. The neighbours may include the sentence's partner.
Source: Artetxe and Schwenk (2019), "Margin-based parallel corpus mining", in the form in which
LASER scores pairs.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from xlj.retrieval.nearest import NEIGHBOURS
from xlj.retrieval.search import MIN_DENSITY, neighbours

CHUNK = 65536
"""The number of vectors that are compared at a time."""


class Vectors:
    """Vectors in one or more arrays, read in blocks.

    Args:
      parts: the arrays, float [n, width] each, such as memory-mapped files.
      columns: the columns of the arrays that contain the vectors.
    """

    def __init__(self, parts: Sequence[np.ndarray], columns: slice = slice(None)):
        self._parts, self._columns = parts, columns

    def blocks(self, places: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """Yields the vectors in order, at most `CHUNK` at a time.

        Args:
          places: the indices of the vectors to read, int64, ascending; None for all vectors.
        """
        start = 0
        for part in self._parts:
            if places is None:
                in_part: np.ndarray | range = range(len(part))
            else:
                first, last = np.searchsorted(places, (start, start + len(part)))
                in_part = places[first:last] - start
            for begin in range(0, len(in_part), CHUNK):
                chunk = in_part[begin : begin + CHUNK]
                at = slice(chunk.start, chunk.stop) if isinstance(chunk, range) else chunk
                yield np.asarray(part[at][:, self._columns])
            start += len(part)


def cosines(source: Vectors, target: Vectors) -> np.ndarray:
    """Computes the cosine of each pair, float32 [pairs]; NaN if a vector is zero.

    Source and target must have arrays of the same lengths.
    """
    blocks = [np.zeros(0, np.float32)]
    for source_block, target_block in zip(source.blocks(), target.blocks(), strict=True):
        lengths = np.linalg.norm(source_block, axis=1) * np.linalg.norm(target_block, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            blocks.append(
                (np.einsum("nd,nd->n", source_block, target_block) / lengths).astype(np.float32)
            )
    return np.concatenate(blocks)


def densities(queries: Vectors, keys: Vectors, places: np.ndarray) -> np.ndarray:
    """Computes the mean cosine of each query with the four nearest keys, float32 [queries].

    The search is exact: it computes all cosines, block by block.

    Args:
      places: the indices of the keys to search, int64, ascending. They should contain each distinct
        sentence once.
    """
    means = [np.zeros(0, np.float32)]
    for block in queries.blocks():
        best = np.zeros((len(block), 0), np.float32)
        for key_block in keys.blocks(places):
            scores = neighbours(block, key_block, NEIGHBOURS).scores
            best = -np.sort(-np.concatenate([best, scores], 1), axis=1)[:, :NEIGHBOURS]
        means.append(best.mean(1) if best.size else np.zeros(len(block), np.float32))
    return np.concatenate(means)


def ratio(source: Vectors, target: Vectors, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Computes the ratio margin of each pair, float32 [pairs]; NaN if a vector is zero.

    Args:
      sources, targets: the index of the first occurrence of each distinct sentence, int64,
        ascending. Only these sentences are neighbours. Otherwise the nearest neighbours of a
        sentence could be copies of one sentence.
    """
    source_densities = densities(source, target, targets)
    target_densities = densities(target, source, sources)
    return cosines(source, target) / np.maximum(
        (source_densities + target_densities) / 2, MIN_DENSITY
    )
