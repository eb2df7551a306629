"""Median times of repeated calls."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Size(NamedTuple):
    """The size of a step, and how often it is measured."""

    rows: int
    length: int
    repeats: int


def median_seconds(call: Callable[[], Any], repeats: int) -> float:
    """The median of the times that a call takes, after one that is not counted."""
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2]
