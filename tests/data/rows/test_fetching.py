"""Each host reads the rows of its part of a batch in runs; this does not change batches."""

import numpy as np
import pytest

from xlj.data.rows import draws
from xlj.data.rows.draws import BLOCK, Sampler, SamplingPhase, draws_per_block, sampling_rates
from xlj.data.rows.fetching import Fetcher
from xlj.data.rows.row_records import Field, record_dtype

BATCH = 2048
RECORD = record_dtype([Field("tokens", "<u2", (1,), is_text=True)])


def stream(sizes, alpha=0.7, batch=BATCH):
    counts = draws_per_block(sampling_rates(sizes, alpha))
    phases = [SamplingPhase(0, ((0, batch),), tuple(counts[name] for name in sizes))]
    return Sampler("mmlm", 0, list(sizes), list(sizes.values()), phases)


LANGUAGES = {f"l{i}": int(400_000_000 * (i + 1) ** -1.8) for i in range(100)}
"""From 400 million rows down to 100,000, like languages on the web."""


class NumberedRows:
    """A store whose rows contain only their numbers: 6 bytes per row instead of 1 KiB."""

    def fetch(self, task, row, count):
        assert 0 <= row and row + count <= LANGUAGES[task]
        records = np.zeros(count, RECORD)
        records["crc"] = np.arange(row, row + count)
        return records


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 16, 64])
def test_hosts_fetch_hardly_more_rows_than_they_use(hosts):
    """1 GiB of cache per host, 100 languages; steps from the middle of a window into the next."""
    a_stream = stream(LANGUAGES)
    share = BATCH // hosts
    cache_rows = (1 << 30) // 1028
    fetchers = {
        host: Fetcher(NumberedRows(), cache_rows * RECORD.itemsize) for host in {0, hosts // 2}
    }
    steps = range(300, 300 + 64 * min(hosts, 9))
    for step in steps:
        drawn = a_stream.draw(step, np.arange(BATCH))
        for host, fetcher in fetchers.items():
            part = slice(host * share, (host + 1) * share)
            for task in np.unique(drawn.tasks[part]):
                chosen = np.flatnonzero(drawn.tasks[part] == task) + part.start
                rows = drawn.rows[chosen]
                actual = fetcher.read(a_stream.tasks[task], rows, drawn.ahead[chosen])
                assert np.array_equal(actual["crc"], rows)
    used = len(steps) * share
    for fetcher in fetchers.values():
        cached = len(fetcher._cache)  # rows of later batches
        assert cached < 0.9 * cache_rows  # so no row was evicted
        assert used <= fetcher.fetched / RECORD.itemsize - cached < 1.02 * used
        assert fetcher.fetched / fetcher.fetches > 24 * RECORD.itemsize  # not row by row


def test_a_batch_mixes_shards_almost_as_if_rows_were_drawn_one_by_one():
    """Two rows of a shard (250,000 neighbours in the text) share a batch hardly more often than by
    chance."""
    a_stream = stream(LANGUAGES)
    shard = 250_000
    for task in range(6):
        together = pairs = 0
        for step in range(20, 500, 16):
            drawn = a_stream.draw(step, np.arange(BATCH))
            shards = np.unique(drawn.rows[drawn.tasks == task] // shard, return_counts=True)[1]
            together += int((shards * (shards - 1)).sum())
            pairs += int(shards.sum() * (shards.sum() - 1))
        chance = shard / LANGUAGES[f"l{task}"]
        assert together / pairs < 1.5 * chance + 0.002


def test_an_epoch_draws_each_row_once_in_runs_of_consecutive_rows(monkeypatch):
    monkeypatch.setattr(draws, "_MAX_BLOCKS", 2)
    sizes = {"large": 5 * BLOCK * 2 + 12_345, "small": 5000}
    a_stream = stream(sizes, alpha=1.0, batch=1024)
    assert a_stream._blocks == 2
    steps = -(-2 * sum(sizes.values()) // 1024)
    drawn = [a_stream.draw(step, np.arange(1024)) for step in range(steps)]
    tasks, rows, ahead = (
        np.concatenate([getattr(d, f) for d in drawn]) for f in ("tasks", "rows", "ahead")
    )
    for task, size in enumerate(sizes.values()):
        task_rows = rows[tasks == task]
        for epoch in range(len(task_rows) // size):
            assert len(np.unique(task_rows[epoch * size : (epoch + 1) * size])) == size
        first, second = task_rows[:size], task_rows[size : 2 * size]
        assert (first[: len(second)] == second).mean() < 0.001
    assert 30 < ahead[tasks == 0].mean() < 128 and ahead.min() == 1 and ahead.max() <= 128
    assert (ahead[tasks == 1] == 1).all()  # a small task is shuffled row by row


def test_a_lane_draws_the_rows_that_ahead_announces():
    """The lane of a draw also draws the `ahead` rows that start at the row of the draw."""
    a_stream = stream({"a": 2_000_000, "b": 700_000}, batch=2048)
    drawn = [a_stream.draw(step, np.arange(2048)) for step in range(256)]
    for lane in (0, 63):
        slots = slice(32 * lane, 32 * lane + 32)
        tasks, rows, ahead = (
            np.concatenate([getattr(d, f)[slots] for d in drawn])
            for f in ("tasks", "rows", "ahead")
        )
        assert ahead.max() > 20
        for task in range(2):
            task_rows = set(rows[tasks == task].tolist())
            for row, count in zip(rows[tasks == task], ahead[tasks == task], strict=True):
                assert task_rows.issuperset(range(row, row + count))


def test_a_small_cache_stays_within_its_size_and_still_returns_the_rows():
    small = Fetcher(NumberedRows(), 10 * RECORD.itemsize)
    for row in (0, 50, 1, 51, 2, 52):
        (actual,) = small.read("l0", np.array([row]), np.array([8]))["crc"]
        assert actual == row
        assert len(small._cache) <= 10
    assert small.fetches > 2


def test_rows_that_are_fetched_again_before_use_do_not_fill_the_cache():
    fetcher = Fetcher(NumberedRows(), 8 * RECORD.itemsize)

    def read(row, ahead):
        assert fetcher.read("l0", np.array([row]), np.array([ahead]))["crc"] == row

    for _ in range(20):
        read(2, 2)  # evicts 3
        read(2, 3)  # reads 3 again
        read(3, 1)
        read(4, 1)
    read(10, 7)
    read(20, 1)
    fetches = fetcher.fetches
    for row in range(11, 17):
        read(row, 1)
    assert fetcher.fetches == fetches, "rows that fit into the cache were evicted"
