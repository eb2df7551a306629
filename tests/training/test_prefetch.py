"""Prefetching ends when it is closed, with any number of steps left."""

import time

import jax
import numpy as np
import pytest

from xlj.sharding import meshes
from xlj.training.prefetch import Prefetch


class Endless:
    """Batches of zeros that count how many were read."""

    def __init__(self, fail_at=None):
        self.asked, self.fail_at = 0, fail_at

    def shapes(self, step):
        self.asked += 1
        return {"mmlm": (8, 4)}

    def read(self, name, step, slots):
        if step == self.fail_at:
            raise OSError("a row is gone")
        return np.zeros((len(slots), 4), np.uint16), np.zeros((len(slots), 2), np.int32)

    def tokens(self, name, rows):
        return 0


def test_closing_stops_prefetching_with_any_number_of_steps_left():
    batches = Endless()
    prefetch = Prefetch(batches, meshes.one_device(), 0, 3_000_000)
    next(iter(prefetch))
    begin = time.monotonic()
    prefetch.close()
    assert time.monotonic() - begin < 5
    assert batches.asked < 20


def test_an_error_in_reading_is_raised_where_the_batch_is_wanted():
    prefetch = Prefetch(Endless(fail_at=1), meshes.one_device(), 0, 3_000_000)
    taken = iter(prefetch)
    rows, _ = next(taken)
    assert isinstance(rows["mmlm"].tokens, jax.Array)
    with pytest.raises(OSError, match="a row is gone"):
        next(taken)
    prefetch.close()
