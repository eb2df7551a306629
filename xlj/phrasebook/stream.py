"""A tiny deterministic random stream: the same numbers on every platform and Python version."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(value: int) -> int:
    """The splitmix64 finaliser: a bijection of 64-bit integers that scrambles every bit."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def seed_of(name: str) -> int:
    """A seed of its own for each name, whatever the platform or the hash seed."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


class Stream:
    """Splitmix64 seeded by any number of integers (order matters, negative ones are allowed)."""

    def __init__(self, *key: int) -> None:
        state = 0
        for part in key:
            state = _mix((state ^ (part & _MASK)) + _GOLDEN & _MASK)
        self._state = state

    def below(self, bound: int) -> int:
        """An integer in [0, bound); the bias is under bound / 2**64."""
        self._state = (self._state + _GOLDEN) & _MASK
        return (_mix(self._state) * bound) >> 64

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, each equally likely."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """True in that many draws of a hundred."""
        return self.below(100) < percent
