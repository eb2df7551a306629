"""Keyed permutations of [0, n) that are evaluated at single indices, without a table."""

import numpy as np

from xlj.io.hashing import hash64

_ROUNDS = 6


def permute(indices: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The image of each index under a permutation of its own [0, size), which its key chooses.

    A Feistel network on the smallest even number of bits that holds the size, walked on until the
    image falls into the range again (Black and Rogaway, 2002).

    Args:
      indices: int64 [n], each in [0, its size).
      sizes: int64 [n].
      keys: uint64 [n].
    Returns:
      int64 [n].
    """
    # Bits of size - 1: float64's exponent is exact below 2**53.
    bits = np.frexp((sizes - 1).astype(np.float64))[1]
    half = np.maximum(1, (bits + 1) // 2).astype(np.uint64)
    mask = (np.uint64(1) << half) - np.uint64(1)
    images = indices.astype(np.uint64)
    walking = np.arange(len(images))
    while len(walking):
        x, h, m, k = images[walking], half[walking], mask[walking], keys[walking]
        left, right = x >> h, x & m
        for turn in range(_ROUNDS):
            left, right = right, left ^ (hash64(right, k + np.uint64(turn)) & m)
        images[walking] = (left << h) | right
        walking = walking[images[walking] >= sizes[walking].astype(np.uint64)]
    return images.astype(np.int64)


def sample(count: int, size: int) -> np.ndarray:
    """The same `count` of the numbers below `size` each time, in no order; all, if there are not
    more: int64 [at most count]."""
    like = np.ones(min(count, size), np.int64)
    return permute(np.arange(len(like)), size * like, like.astype(np.uint64))
