"""Batches contain the drawn rows; a damaged row raises an error or becomes padding.

Each host reads the rows of its part of a batch in runs; this does not change batches.
"""

import dataclasses
import shutil
from collections import Counter

import numpy as np
import pytest

from xlj.config import parse
from xlj.data.rows import draws
from xlj.data.rows.batches import Batches, Fetcher
from xlj.data.rows.draws import BLOCK, Sampler, SamplingPhase, draws_per_block, sampling_rates
from xlj.data.rows.report import report
from xlj.data.rows.row_kind import Field, record_dtype
from xlj.data.rows.store import RowStore, RowStoreError
from xlj.data.tokenizer.layout import PAD


@pytest.fixture
def copy(store, tmp_path):
    """A copy of the rows of `store`, and a function that damages a row of the copy."""
    shutil.copytree(store.path.parent, tmp_path / "cache")
    copied = RowStore(tmp_path / "cache" / store.path.name)

    def damage(task, row):
        file = copied.file(task, 0)
        content = bytearray(file.read_bytes())
        size = len(content) // (copied.task(task).train.rows + copied.task(task).held_out.rows)
        content[row * size + 5] ^= 4
        file.write_bytes(content)

    return copied, damage


def test_languages_that_are_not_sampled_get_no_draws(tiny, store):
    tiny.data.sampled = "en,de=3"
    config = parse(tiny)
    counts = draws.count_draws(store, config.objectives.mmlm, config)
    weights = {
        f"text.{name}": factor * store.task(f"text.{name}").train.tokens ** config.data.alpha
        for name, factor in (("en", 1), ("de", 3))
    }
    total = sum(weights.values())
    assert set(counts) == set(weights)
    for name, weight in weights.items():
        assert counts[name] == pytest.approx(BLOCK * weight / total, abs=1)
    names = {name for step in range(4) for name, _ in Batches(store, config).draw(
        "mmlm", step, np.arange(config.objectives.mmlm.batch_size))}  # fmt: skip
    assert names == set(weights)
    # No pair is in data.sampled, so all pairs are drawn.
    assert set(draws.count_draws(store, config.objectives.tlm, config)) == {
        "pairs.en-de", "pairs.en-sw"
    }  # fmt: skip
    drawn = {line.split()[0]: line.split()[7] for line in report(store, config.data).split("\n")
             if line.startswith("text.")}  # fmt: skip
    assert drawn == {
        name: f"{100 * counts.get(name, 0) / BLOCK:.1f}%"
        for name in ("text.en", "text.de", "text.sw")
    }


def read_row(store, task, number):
    return store.read(task, "train", np.array([number]))["tokens"][0]


def test_the_mean_tokens_of_a_row_are_those_of_the_drawn_rows_without_padding(tiny, store):
    config = parse(tiny)
    for name in ("mmlm", "tlm"):
        options, mean = config.objectives_on()[name], 0.0
        for task, count in draws.count_draws(store, options, config).items():
            rows = store.read(task, "train", np.arange(store.task(task).train.rows))["tokens"]
            mean += count / BLOCK * (rows != PAD).sum(1).mean()
        assert draws.mean_tokens_per_row(store, options, config) == pytest.approx(mean)


def test_a_batch_contains_the_drawn_rows(tiny, store):
    batches = Batches(store, parse(tiny))
    for step in (0, 3, 400):
        for name in ("mmlm", "tlm"):
            batch = batches.read(name, step, np.arange(16))
            rows, languages = batch["tokens"], batch["languages"]
            for row, (task, number) in zip(
                rows, batches.draw(name, step, np.arange(16)), strict=True
            ):
                assert np.array_equal(
                    row, store.read(task, "train", np.array([number]))["tokens"][0]
                )
            of_sides = [[batches.corpus.languages[side] for side in pair] for pair in languages]
            tasks = [task for task, _ in batches.draw(name, step, np.arange(16))]
            expected = [task.partition(".")[2].split("-") for task in tasks]
            assert of_sides == [[pair[0], pair[-1]] for pair in expected]
            part = Batches(store, parse(tiny)).read(name, step, np.array([9, 2]))
            assert list(part) == ["tokens", "languages"]
            for field, values in part.items():
                assert np.array_equal(values, batch[field][[9, 2]])


def test_batches_grow_by_microbatches_and_draw_no_row_for_empty_slots(tiny, store):
    """Warm-up from one to four microbatches over nine steps, three steps of each size: slot s is in
    microbatch s mod 4. All draws in order equal those of a run with one row per step."""
    tiny.train.steps, tiny.train.batch_warmup, tiny.train.gradient_accumulation_steps = 12, 9, 4
    tiny.objectives.tlm.batch_size = 8
    batches = Batches(store, parse(tiny))
    tiny.train.batch_warmup, tiny.train.gradient_accumulation_steps, tiny.train.steps = 0, 1, 500
    tiny.objectives.mmlm.batch_size = tiny.objectives.tlm.batch_size = 1
    alone = Batches(store, parse(tiny))
    for name, rows in (("mmlm", 16), ("tlm", 8)):
        slots, drawn = np.arange(rows), []
        for step, size in enumerate([1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4]):
            assert batches.shapes(step)[name][0] == rows
            batch = batches.read(name, step, slots)
            read, languages = batch["tokens"], batch["languages"]
            filled = slots % 4 < size
            assert ((read != PAD).any(1) == filled).all() and not languages[~filled].any()
            draws = batches.draw(name, step, slots)
            assert len(draws) == rows * size // 4
            for row, (task, number) in zip(read[filled], draws, strict=True):
                assert np.array_equal(
                    row, store.read(task, "train", np.array([number]))["tokens"][0]
                )
            part, empty = batches.read(name, step, slots[5:7]), batches.read(name, step, slots[3:4])
            assert np.array_equal(part["tokens"], read[5:7])
            assert np.array_equal(part["languages"], languages[5:7])
            assert np.array_equal(empty["tokens"], read[3:4])
            drawn += draws
        first = [alone.draw(name, step, slots[:1])[0][0] for step in range(len(drawn))]
        assert [task for task, _ in drawn] == first
        assert (batches.read(name, 11, slots)["tokens"] != PAD).any(1).all()


def test_alpha_weights_languages_by_tokens_and_each_phase_has_its_own_alpha(
    tiny, store, monkeypatch
):
    """The rate of a language is proportional to tokens^alpha, whatever its number of rows."""
    factors = {"text.en": 1, "text.de": 10, "text.sw": 300}

    def tasks(kind, of_kind=store.tasks):
        for task in of_kind(kind):
            tokens = task.train.tokens * factors.get(task.name, 1)
            train = dataclasses.replace(task.train, tokens=tokens)
            yield dataclasses.replace(task, train=train)

    monkeypatch.setattr(store, "tasks", lambda kind: [*tasks(kind)])
    tiny.data.alpha, tiny.train.steps = 0.5, 9_000
    begin = BLOCK // tiny.objectives.mmlm.batch_size
    tiny.phases = {"second": {"start_step": begin, "data": {"alpha": 0.25}}}
    batches = Batches(store, parse(tiny))
    for step, alpha in ((0, 0.5), (begin, 0.25)):
        actual = Counter(task for task, _ in batches.draw("mmlm", step, np.arange(BLOCK)))
        powers = {task.name: task.train.tokens**alpha for task in tasks("text")}
        assert actual.keys() == powers.keys() == factors.keys()
        for task, power in powers.items():
            assert abs(actual[task] - BLOCK * power / sum(powers.values())) <= 1


def test_a_damaged_row_stops_the_run_or_leaves_its_slot_empty(tiny, copy, capsys):
    store, damage = copy
    whole = Batches(store, parse(tiny)).read("mmlm", 7, np.arange(16))["tokens"]
    task, row = Batches(store, parse(tiny)).draw("mmlm", 7, np.array([11]))[0]
    damage(task, row)
    message = rf"00000\.rows: row {row} is damaged.*delete .*{task}.* xlj\.prepare"
    with pytest.raises(RowStoreError, match=message):
        Batches(store, parse(tiny)).read("mmlm", 7, np.arange(16))
    tiny.data.damaged_rows = "pad"
    batches = Batches(store, parse(tiny))
    actual = batches.read("mmlm", 7, np.arange(16))["tokens"]
    assert (actual[11] == PAD).all()
    assert np.array_equal(np.delete(actual, 11, 0), np.delete(whole, 11, 0))
    others = batches.read("mmlm", 7, np.arange(8))["tokens"]
    assert np.array_equal(others, whole[:8])
    output = capsys.readouterr().err
    assert output.startswith("step 7: ") and f"row {row} is damaged" in output
    assert output.count("padding replaces this row") == 1


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
