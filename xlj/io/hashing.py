"""A hash of our own for batches, so that they never change with a library's version."""

import hashlib

import numpy as np

_STEP = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def name_hash(name: str) -> int:
    """A stable 64-bit hash of a name (BLAKE2b)."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def combine(*parts: int) -> int:
    """One 64-bit key out of several integers, in order."""
    key = np.zeros(1, np.uint64)
    for part in parts:
        key = hash64(key, part & _MASK)
    return int(key[0])


def hash64(values: np.ndarray, key: int | np.ndarray) -> np.ndarray:
    """Keyed hash of each value: uint64 [n], one key or uint64 [n] -> uint64 [n].

    SplitMix64's finaliser (Steele et al., 2014), applied before and after the key is mixed in.
    """
    with np.errstate(over="ignore"):
        return _mix(_mix(values + np.uint64(_STEP)) ^ np.asarray(key, np.uint64))


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
