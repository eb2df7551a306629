"""Every row is in one batch that is wide enough; results come in order."""

import numpy as np
import pytest

from xlj.inference.row_batches import buckets, in_flight


@pytest.mark.parametrize("devices", [1, 3, 8])
def test_buckets_hold_every_row_once(devices):
    sizes = np.random.default_rng(0).integers(0, 101, 5000)
    seen, shapes = [], set()
    for members, width, rows in buckets(sizes, 100, devices):
        assert len(members) <= rows and rows % devices == 0
        assert sizes[members].max() <= width <= 100
        seen += members.tolist()
        shapes.add((rows, width))
    assert sorted(seen) == list(range(5000)) and len(shapes) == 5


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
def test_results_are_read_in_order_behind_the_batches(count):
    started = []

    def batches():
        for number in range(count):
            started.append(number)
            yield number

    read = []
    for number in in_flight(batches()):
        read.append(number)
        assert len(started) == min(count, number + 3)
    assert read == list(range(count))
