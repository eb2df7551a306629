"""Hashes and permutations of xlj's own, so that library versions cannot change batches."""

import hashlib

import numpy as np

_STEP = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_ROUNDS = 6


def name_hash(name: str) -> int:
    """Computes a stable 64-bit hash of a name (BLAKE2b)."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def combine(*parts: int) -> int:
    """Combines several integers into one 64-bit key; their order matters."""
    key = np.zeros(1, np.uint64)
    for part in parts:
        key = hash64(key, part & _MASK)
    return int(key[0])


def hash64(values: np.ndarray, key: int | np.ndarray) -> np.ndarray:
    """Computes a keyed hash of each value: uint64 [n], one key or uint64 [n] -> uint64 [n].

    Applies SplitMix64's finalizer (Steele et al., 2014) before and after mixing in the key.
    """
    with np.errstate(over="ignore"):
        return _mix(_mix(values + np.uint64(_STEP)) ^ np.asarray(key, np.uint64))


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def permute(indices: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Permutes each index within its own range [0, size), by the permutation that its key chooses.

    Uses a Feistel network on the smallest even number of bits that can hold the size, repeated
    until the image is in the range (Black and Rogaway, 2002). Indices, each in [0, size), sizes and
    images are int64 [n], keys uint64 [n].
    """
    # Bits of size - 1; float64's exponent is exact below 2**53.
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
    """Draws `count` of the numbers below `size`, always the same ones, unordered: int64 [n].

    Returns all numbers if there are not more.
    """
    like = np.ones(min(count, size), np.int64)
    return permute(np.arange(len(like)), size * like, like.astype(np.uint64))
