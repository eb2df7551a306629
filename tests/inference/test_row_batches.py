"""Each row is in exactly one batch, and the batch is wide enough; results are in order."""

import numpy as np
import pytest

from xlj.inference.row_batches import buckets, in_flight, spread
from xlj.sharding import devices


@pytest.mark.parametrize("count", [1, 3, 8])
def test_buckets_hold_every_row_once(count):
    sizes = np.random.default_rng(0).integers(0, 101, 5000)
    seen, shapes = [], set()
    for members, width, rows in buckets(sizes, 100, count):
        assert len(members) <= rows and rows % count == 0
        assert sizes[members].max() <= width <= 100
        seen += members.tolist()
        shapes.add((rows, width))
    assert sorted(seen) == list(range(5000)) and len(shapes) <= 2 * 9


@pytest.mark.parametrize("count", [2, 3, 8])
def test_each_device_gets_a_batch_of_one_device(count):
    sizes = np.random.default_rng(0).integers(0, 101, 5000)
    alone = [(*batch[1:], batch[0].tolist()) for batch in buckets(sizes, 100, 1)]
    on_devices, steps = [], 0
    for members, width, rows in spread(buckets(sizes, 100, 1), count):
        assert rows % count == 0
        of_device = rows // count
        parts = [members[i : i + of_device].tolist() for i in range(0, len(members), of_device)]
        assert len(parts) <= count
        on_devices += [(width, of_device, part) for part in parts]
        steps += 1
    assert on_devices == alone and steps <= len(alone) / count + 2 * 9


@pytest.mark.parametrize("count", [1, 60, 5000])
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_batches_have_little_padding(platform, count, monkeypatch):
    monkeypatch.setattr(devices, "platform", lambda: platform)
    sizes = np.random.default_rng(0).integers(5, 101, count)
    padded = sum(rows * width for _, width, rows in buckets(sizes, 512, 1))
    assert padded <= (1.35 if count > 100 else 3) * sizes.sum() + 8 * 96


@pytest.mark.parametrize(
    "longer, expected", [(30, [(61, 32)]), (40, [(60, 24), (1, 48)]), (500, [(60, 24), (1, 512)])]
)
def test_short_rows_join_longer_rows_if_this_adds_little_padding(longer, expected):
    sizes = np.array([20] * 60 + [longer])
    assert [(len(m), width) for m, width, _ in buckets(sizes, 512, 1)] == expected


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
def test_results_are_in_order_while_two_more_batches_are_started(count):
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
