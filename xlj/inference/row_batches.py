"""Rows of similar length in batches of few shapes, and some batches on the devices at a time."""

import collections
import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from xlj.sharding import devices

T = TypeVar("T")
Advance = Callable[[int], object]
"""Is told how many rows, sentences or pairs were done since the last time, as progress bars are."""

_IN_FLIGHT = 2


def buckets(
    sizes: np.ndarray, limit: int, devices: int, most: int | None = None
) -> Iterator[tuple[np.ndarray, int, int]]:
    """Rows of similar length, by index, and the width and number of their batch's rows: few shapes
    in all, each compiled once, whose rows divide over the devices. Rows that fill no batch go with
    the next longer ones if that pads them little, else they are a smaller batch. The sizes are int
    [rows], in tokens, at most `limit`; a batch has at most `most` rows, but one a device."""
    distinct, which = np.unique(sizes, return_inverse=True)
    width_of = np.array([min(rounded(size, 8), limit) for size in distinct.tolist()], np.int64)
    widths, tokens = np.unique(width_of).tolist(), _batch_tokens()
    rest = np.zeros(0, np.int64)
    for width, longer in itertools.zip_longest(widths, widths[1:]):
        members = np.concatenate([rest, np.flatnonzero(width_of[which] == width)])
        rows = max(1, min(tokens // width, most or tokens))
        rows += -rows % devices
        left = len(members) % rows
        if not longer or left * (longer - width) > tokens // 4:
            left = 0
        rest = members[len(members) - left :]
        for start in range(0, len(members) - left, rows):
            batch = members[start : start + rows]
            fewer = rounded(len(batch), 8)
            yield batch, width, min(rows, fewer + -fewer % devices)


def rounded(size: int, least: int) -> int:
    """The next of `least` times 1, 1.5, 2, 3, 4, 6, 8, ...: few sizes, each compiled once."""
    power = least
    while power < size:
        if power + power // 2 >= size:
            return power + power // 2
        power *= 2
    return power


def _batch_tokens() -> int:
    """Tokens of a batch, padding included: a CPU gains nothing by more."""
    return 2048 if devices.platform() == "cpu" else 8192


def in_flight(batches: Iterator[T]) -> Iterator[T]:
    """The same batches, in order, a few later: a result that is read is not waited for, since the
    devices already have the next ones."""
    flying: collections.deque[T] = collections.deque()
    for batch in batches:
        flying.append(batch)
        if len(flying) > _IN_FLIGHT:
            yield flying.popleft()
    yield from flying
