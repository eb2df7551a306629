"""A keyed permutation of [0, n) that is evaluated at single indices, without a table."""

from __future__ import annotations

import numpy as np

from xlj.data.hashing import hash64

_ROUNDS = 6


def permute(indices: np.ndarray, size: int, key: int) -> np.ndarray:
    """Images of `indices` under the permutation of [0, size) that `key` chooses.

    A Feistel network on the smallest even number of bits that holds `size`, walked on until the
    image falls into the range again (Black and Rogaway, 2002).

    Args:
      indices: int64 [n], each in [0, size).
    Returns:
      int64 [n].
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    low_bits = np.uint64((1 << int(half)) - 1)
    images = indices.astype(np.uint64)
    walking = np.ones(len(images), bool)
    while walking.any():
        x = images[walking]
        left, right = x >> half, x & low_bits
        for turn in range(_ROUNDS):
            left, right = right, left ^ (hash64(right, key + turn) & low_bits)
        images[walking] = (left << half) | right
        walking = images >= size
    return images.astype(np.int64)
