"""Hashes and permutations that do not depend on library versions, so that batches never change."""

import hashlib

import numpy as np

_INCREMENT = 0x9E3779B97F4A7C15
_64_BITS = (1 << 64) - 1
_ROUNDS = 6


def name_hash(name: str) -> int:
    """Computes a stable 64-bit hash of a name (BLAKE2b)."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def combine(*numbers: int) -> int:
    """Combines several integers into one 64-bit key; their order matters."""
    key = np.zeros(1, np.uint64)
    for part in numbers:
        key = hash64(key, part & _64_BITS)
    return int(key[0])


def hash64(values: np.ndarray, key: int | np.ndarray) -> np.ndarray:
    """Computes a keyed hash of each value.

    Applies SplitMix64's finalizer (Steele et al., 2014) before and after mixing in the key.

    Args:
      values: uint64 [n].
      key: one key for all values, or a key for each value, uint64 [n].

    Returns:
      uint64 [n].
    """
    with np.errstate(over="ignore"):
        return _mix(_mix(values + np.uint64(_INCREMENT)) ^ np.asarray(key, np.uint64))


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def permute(indices: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Permutes each index: the key keys[i] selects a permutation of [0, sizes[i]).

    The permutation is a Feistel network on the smallest even number of bits, at least 2, that can
    hold sizes[i] - 1. The network is applied repeatedly, until the image is in the range (Black and
    Rogaway, 2002).

    Args:
      indices: int64 [n], with 0 <= indices[i] < sizes[i].
      sizes: int64 [n].
      keys: uint64 [n].

    Returns:
      The images of the indices, int64 [n].
    """
    # The number of bits of size - 1; float64's exponent is exact below 2**53.
    bits = np.frexp((sizes - 1).astype(np.float64))[1]
    half = np.maximum(1, (bits + 1) // 2).astype(np.uint64)
    mask = (np.uint64(1) << half) - np.uint64(1)
    images = indices.astype(np.uint64)
    outside = np.arange(len(images))  # the positions whose image is not yet in the range
    while len(outside):
        x, h, m, k = images[outside], half[outside], mask[outside], keys[outside]
        left, right = x >> h, x & m
        for round_number in range(_ROUNDS):
            left, right = right, left ^ (hash64(right, k + np.uint64(round_number)) & m)
        images[outside] = (left << h) | right
        outside = outside[images[outside] >= sizes[outside].astype(np.uint64)]
    return images.astype(np.int64)


def sample(count: int, size: int) -> np.ndarray:
    """Draws `count` different numbers from [0, size); equal arguments give equal numbers.

    Returns:
      Unsorted numbers, int64 [min(count, size)].
    """
    ones = np.ones(min(count, size), np.int64)
    return permute(np.arange(len(ones)), size * ones, ones.astype(np.uint64))
