"""Groups rows of similar length into batches of few shapes, and keeps several batches in flight."""

import collections
import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from xlj.sharding import devices

T = TypeVar("T")
Advance = Callable[[int], object]
"""A callback for progress bars: takes the number of items (rows, sentences) since its last call."""

_IN_FLIGHT = 2


def buckets(
    sizes: np.ndarray, limit: int, devices: int, most: int | None = None
) -> Iterator[tuple[np.ndarray, int, int]]:
    """Groups rows of similar length into batches of few shapes, because each shape is compiled.

    Rows that do not fill a batch are padded to the next longer width if that adds little padding,
    otherwise they form a smaller batch.

    Args:
      sizes: int [rows], the number of tokens of each row.
      limit: the maximum size.
      devices: the number of devices, which divides the rows of a batch.
      most: the maximum number of rows of a batch (but at least one per device); None for no limit.

    Yields:
      The indices of a batch's rows, its width, and its number of rows (with unused ones).
    """
    distinct, which = np.unique(sizes, return_inverse=True)
    width_of = np.array([min(rounded(size, 8), limit) for size in distinct.tolist()], np.int64)
    widths, tokens = np.unique(width_of).tolist(), _batch_tokens()
    rest = np.zeros(0, np.int64)
    for width, longer in itertools.zip_longest(widths, widths[1:]):
        members = np.concatenate([rest, np.flatnonzero(width_of[which] == width)])
        rows = max(1, min(tokens // width, most or tokens))
        rows += -rows % devices
        remainder = len(members) % rows
        if not longer or remainder * (longer - width) > tokens // 4:
            remainder = 0
        rest = members[len(members) - remainder :]
        for start in range(0, len(members) - remainder, rows):
            batch = members[start : start + rows]
            fewer = rounded(len(batch), 8)
            yield batch, width, min(rows, fewer + -fewer % devices)


def rounded(size: int, least: int) -> int:
    """Rounds a size up to `least` times 1, 1.5, 2, 3, 4, 6, 8, ..., so that there are few sizes."""
    power = least
    while power < size:
        if power + power // 2 >= size:
            return power + power // 2
        power *= 2
    return power


def _batch_tokens() -> int:
    """Returns the number of tokens of a batch including padding; larger ones do not help CPUs."""
    return 2048 if devices.platform() == "cpu" else 8192


def in_flight(batches: Iterator[T]) -> Iterator[T]:
    """Yields the same batches in order, delayed by a few, so that devices compute the next batches
    while a result is read."""
    pending: collections.deque[T] = collections.deque()
    for batch in batches:
        pending.append(batch)
        if len(pending) > _IN_FLIGHT:
            yield pending.popleft()
    yield from pending
