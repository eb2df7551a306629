"""Groups rows of similar length into batches of few shapes, and computes several batches at a
time."""

import collections
import itertools
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from xlj.sharding import devices

T = TypeVar("T")
_MAX_IN_FLIGHT = 2  # how many batches `in_flight` starts ahead


def buckets(
    sizes: np.ndarray, limit: int, devices: int, max_rows: int | None = None
) -> Iterator[tuple[np.ndarray, int, int]]:
    """Groups rows of similar length into batches.

    Batches have few shapes, because each shape is compiled. If the last rows of a width do not fill
    a batch, they are padded to the next longer width, or form a smaller batch if that would add
    much padding.

    Args:
      sizes: int [rows], the number of tokens of each row.
      limit: the maximum width of a batch in tokens.
      devices: the number of devices. The number of rows of a batch is a multiple of it.
      max_rows: the maximum number of rows of a batch (but at least one per device); None for no
        limit.

    Yields:
      (indices of the rows, width of the batch, number of rows including unused rows).
    """
    distinct_sizes, which = np.unique(sizes, return_inverse=True)
    width_of = np.array(
        [min(round_up(size, 8), limit) for size in distinct_sizes.tolist()], np.int64
    )
    widths, tokens = np.unique(width_of).tolist(), _batch_tokens()
    rest = np.zeros(0, np.int64)
    for width, longer in itertools.zip_longest(widths, widths[1:]):
        members = np.concatenate([rest, np.flatnonzero(width_of[which] == width)])
        rows = max(1, min(tokens // width, max_rows or tokens))
        rows += -rows % devices
        remainder = len(members) % rows
        if not longer or remainder * (longer - width) > tokens // 4:
            remainder = 0
        rest = members[len(members) - remainder :]
        for start in range(0, len(members) - remainder, rows):
            batch = members[start : start + rows]
            fewer = round_up(len(batch), 8)
            yield batch, width, min(rows, fewer + -fewer % devices)


def spread(
    batches: Iterator[tuple[np.ndarray, int, int]], devices: int
) -> Iterator[tuple[np.ndarray, int, int]]:
    """Joins up to one consecutive batch of the same shape for each device.

    Each device then computes a batch as one device alone would, so results do not depend on the
    number of devices.

    Args:
      batches: of `buckets` for one device.
    """
    for (width, rows), group in itertools.groupby(batches, lambda batch: batch[1:]):
        of_shape = [members for members, *_ in group]
        for start in range(0, len(of_shape), devices):
            yield np.concatenate(of_shape[start : start + devices]), width, rows * devices


def round_up(size: int, least: int) -> int:
    """Rounds a size up to `least` times 1, 1.5, 2, 3, 4, 6, 8, ..., to get few different sizes."""
    power = least
    while power < size:
        if power + power // 2 >= size:
            return power + power // 2
        power *= 2
    return power


def _batch_tokens() -> int:
    """Returns the number of tokens of a batch, including padding.

    On CPUs, larger batches are not faster.
    """
    return 2048 if devices.platform() == "cpu" else 8192


def in_flight(batches: Iterator[T]) -> Iterator[T]:
    """Yields the same batches in order, but runs a few batches ahead.

    The devices thus compute the next batches while the host reads a result.
    """
    pending: collections.deque[T] = collections.deque()
    for batch in batches:
        pending.append(batch)
        if len(pending) > _MAX_IN_FLIGHT:
            yield pending.popleft()
    yield from pending
