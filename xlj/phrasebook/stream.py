"""A small deterministic random stream, the same on all platforms and Python versions."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(value: int) -> int:
    """Applies the splitmix64 finaliser: a bijection of 64-bit integers that mixes all bits."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def seed_of(name: str) -> int:
    """Returns a hash of a name as a seed; it does not depend on the platform or PYTHONHASHSEED."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


class RandomStream:
    """A splitmix64 generator.

    The seed is any number of integers, which may be negative. Their order matters.
    """

    def __init__(self, *key: int) -> None:
        state = 0
        for part in key:
            state = _mix((state ^ (part & _MASK)) + _GOLDEN & _MASK)
        self._state = state

    def below(self, bound: int) -> int:
        """Draws an integer in [0, bound), with a bias under bound / 2**64."""
        self._state = (self._state + _GOLDEN) & _MASK
        return (_mix(self._state) * bound) >> 64

    def pick(self, options: Sequence[T]) -> T:
        """Draws one of the options uniformly."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """Draws a boolean that is True with this probability in percent."""
        return self.below(100) < percent
