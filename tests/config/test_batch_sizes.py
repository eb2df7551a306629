"""The microbatches of each step in the batch warm-up, against tables written by hand."""

import pytest

from xlj.config import ConfigError
from xlj.config.batch_sizes import BatchSizes


@pytest.mark.parametrize(
    "batches, sizes",
    [
        (BatchSizes(6, 1, 4), [1, 1, 2, 2, 3, 3, 4, 4]),
        (BatchSizes(7, 2, 4), [2, 2, 2, 2, 3, 3, 3, 4, 4]),
        # Fewer steps than sizes: some sizes are skipped.
        (BatchSizes(2, 1, 5), [1, 3, 5, 5]),
        (BatchSizes(3, 4, 5), [4, 4, 4, 5]),
        # Without a warm-up, all batches are full, whatever size the first step would have.
        (BatchSizes(0, 1, 4), [4, 4]),
        (BatchSizes(0, 2, 1), [1, 1]),
    ],
)
def test_each_batch_size_lasts_for_equally_many_steps(batches, sizes):
    steps = range(len(sizes))
    assert [batches.size(step) for step in steps] == sizes
    assert [batches.before(step) for step in steps] == [sum(sizes[:step]) for step in steps]
    starts = {size: sizes.index(size) for size in sizes}
    assert batches.ranges() == [(start, size) for size, start in starts.items()]


def test_a_warmup_may_last_as_long_as_its_phase():
    BatchSizes(6, 1, 4).check(6)
    with pytest.raises(ConfigError, match="must end by step 5"):
        BatchSizes(6, 1, 4).check(5)
