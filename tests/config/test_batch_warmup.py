"""The microbatches of each step in the batch warm-up, against tables written by hand."""

import pytest

from xlj.config.batch_warmup import BatchWarmup


@pytest.mark.parametrize(
    "warmup, sizes",
    [
        (BatchWarmup(6, 1, 4), [1, 1, 2, 2, 3, 3, 4, 4]),
        (BatchWarmup(7, 2, 4), [2, 2, 2, 2, 3, 3, 3, 4, 4]),
        # Fewer steps than sizes: some sizes are skipped.
        (BatchWarmup(2, 1, 5), [1, 3, 5, 5]),
        (BatchWarmup(3, 4, 5), [4, 4, 4, 5]),
    ],
)
def test_each_batch_size_lasts_for_equally_many_steps(warmup, sizes):
    steps = range(len(sizes))
    assert [warmup.size(step) for step in steps] == sizes
    assert [warmup.before(step) for step in steps] == [sum(sizes[:step]) for step in steps]
    starts = {size: sizes.index(size) for size in sizes}
    assert warmup.stretches() == [(start, size) for size, start in starts.items()]
