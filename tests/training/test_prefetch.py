"""Prefetching stops when it is closed, and raises errors of reading in the caller."""

import time

import jax
import pytest

from xlj.data.rows import row_kind
from xlj.data.rows.row_kind import Field
from xlj.sharding import meshes
from xlj.training.prefetch import Prefetch


class Endless:
    """An endless source of batches of zeros, which counts the requests for batches."""

    def __init__(self, fail_at=None):
        self.requests, self.fail_at = 0, fail_at

    def shapes(self, step):
        self.requests += 1
        return {"mmlm": (8, 4)}

    def read(self, name, step, slots):
        if step == self.fail_at:
            raise OSError("a row is gone")
        return row_kind.empty(self.fields(name, step), len(slots))

    def fields(self, name, step):
        return Field("tokens", "<u2", (4,), is_text=True), Field("languages", "<i4", (2,))

    def tokens(self, name, rows):
        return 0


def test_closing_stops_prefetching_with_any_number_of_steps_left():
    batches = Endless()
    prefetch = Prefetch(batches, meshes.one_device(), 0, 3_000_000)
    next(iter(prefetch))
    begin = time.monotonic()
    prefetch.close()
    assert time.monotonic() - begin < 5
    assert batches.requests < 20


def test_an_error_in_reading_is_raised_when_the_batch_is_requested():
    prefetch = Prefetch(Endless(fail_at=1), meshes.one_device(), 0, 3_000_000)
    iterator = iter(prefetch)
    rows, _ = next(iterator)
    assert isinstance(rows["mmlm"]["tokens"], jax.Array)
    with pytest.raises(OSError, match="a row is gone"):
        next(iterator)
    prefetch.close()
