"""Marks programs that are traced only to count their operations, and that never run.

Some implementations compute more than the mathematics needs: attention computes all scores of a
row and then hides those outside the window, and some sums are products with ones. The extra work
depends on the platform and on the shapes. It must not count, so these implementations take another
path inside `counting`.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_is_counting: ContextVar[bool] = ContextVar("is_counting", default=False)


@contextlib.contextmanager
def counting() -> Iterator[None]:
    """Marks the programs that are traced inside a `with` statement."""
    before = _is_counting.set(True)
    try:
        yield
    finally:
        _is_counting.reset(before)


def is_counting() -> bool:
    """Returns whether the caller is inside `counting`."""
    return _is_counting.get()
