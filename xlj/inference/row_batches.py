"""Rows of similar length in batches of few shapes, and some batches on the devices at a time."""

import collections
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

T = TypeVar("T")
Advance = Callable[[int], object]
"""Is told how many rows, sentences or pairs were done since the last time, as progress bars are."""

_BATCH_TOKENS = 8192
_IN_FLIGHT = 2


def buckets(sizes: np.ndarray, limit: int, devices: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Rows of similar length, by index, and the width and number of their batch's rows: few shapes
    in all, each compiled once, whose rows divide over the devices. The sizes are int [rows], in
    tokens, at most `limit`."""
    widths = np.minimum(2 ** np.ceil(np.log2(np.maximum(sizes, 8))).astype(int), limit)
    for width in np.unique(widths):
        members = np.flatnonzero(widths == width)
        rows = max(1, _BATCH_TOKENS // int(width))
        rows += -rows % devices
        for start in range(0, len(members), rows):
            yield members[start : start + rows], int(width), rows


def in_flight(batches: Iterator[T]) -> Iterator[T]:
    """The same batches, in order, a few later: a result that is read is not waited for, since the
    devices already have the next ones."""
    flying: collections.deque[T] = collections.deque()
    for batch in batches:
        flying.append(batch)
        if len(flying) > _IN_FLIGHT:
            yield flying.popleft()
    yield from flying
