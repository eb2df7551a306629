"""Rows of text at URLs and rows in buckets equal local rows, also after an interruption."""

import dataclasses
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import servers

from xlj.config import ConfigError, parse
from xlj.data.rows.batches import Batches
from xlj.data.rows.building import build_rows
from xlj.data.rows.preparing import open_rows, prepare_rows
from xlj.data.rows.request import request_of
from xlj.data.rows.store import RowStore
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, buckets
from xlj.io.storage import to_path


@pytest.fixture(scope="module", params=["gs", "s3"])
def bucket(request):
    with servers.bucket(request.param) as (url, _):
        yield url


@pytest.fixture
def small(tiny):
    """A config with text of two languages, and a pair that shares sentences with both."""

    def make(folder, cache, **more):
        config = parse(tiny)
        fields = {
            "languages": ("en", "sw"),
            "mono": (f"{folder}/mono/{{language}}.txt",),
            "pairs": ("en-sw",),
            "parallel": (f"{folder}/pairs/{{pair}}.tsv",),
            "cache": str(cache),
            "duplicates": "drop",
            "unit_bytes": 20_000,
            "workers": 1,
            **more,
        }
        return dataclasses.replace(config, data=dataclasses.replace(config.data, **fields))

    return make


@pytest.fixture(scope="module")
def text_url(bucket, corpus):
    for file in sorted(corpus.rglob("*.t*")):
        atomic.write(to_path(f"{bucket}/text/{file.relative_to(corpus)}"), file.read_bytes())
    return f"{bucket}/text"


def assert_same_rows(actual: RowStore, expected: RowStore) -> None:
    assert actual.manifest.content_hash == expected.manifest.content_hash
    for task in expected.manifest.tasks:
        for split in ("train", "held_out"):
            rows = np.arange(task.split(split).rows)[::-3]
            read = actual.read(task.name, split, rows)
            for field, values in expected.read(task.name, split, rows).items():
                np.testing.assert_array_equal(read[field], values)
        count = min(9, task.train.rows)
        np.testing.assert_array_equal(
            actual.fetch(task.name, 0, count), expected.fetch(task.name, 0, count)
        )


@pytest.mark.cloud
def test_rows_in_a_bucket_from_text_in_a_bucket_equal_local_rows(
    small, corpus, text_url, bucket, tmp_path
):
    expected = prepare_rows(small(corpus, tmp_path))
    config = small(text_url, f"{bucket}/rows")
    actual = prepare_rows(config)
    assert str(actual.path).startswith(f"{bucket}/rows/")
    assert_same_rows(actual, expected)
    folders = {
        url.partition("/rows/")[2].partition("/")[0]
        for url in buckets.find_objects(f"{bucket}/rows/**")
    }
    assert folders == {actual.path.name, "vocabularies", "companions", "duplicates"} | {
        task.name for task in actual.manifest.tasks
    }  # no lock file remains
    again = prepare_rows(config)  # opens the existing rows
    assert again.path == actual.path
    named_config = dataclasses.replace(
        config, data=dataclasses.replace(config.data, rows=actual.path.name)
    )
    config, opened = open_rows(named_config)
    assert_same_rows(opened, expected)
    assert Vocabulary.load(config.data.vocabulary).digest == expected.manifest.vocabulary_digest


@pytest.mark.cloud
def test_the_rows_of_a_batch_are_read_from_a_bucket_at_the_same_time(
    small, corpus, bucket, tmp_path, monkeypatch
):
    text = {"duplicates": "keep", "unit_bytes": 1 << 20}
    config = small(corpus, f"{bucket}/batches", **text)
    local_config = small(corpus, tmp_path, **text)
    stores = [prepare_rows(config), prepare_rows(local_config)]
    batches, expected = Batches(stores[0], config), Batches(stores[1], local_config)
    active, counts, read = [], [], buckets.read_range

    def slow(*arguments):
        active.append(arguments)
        counts.append(len(active))
        time.sleep(0.02)
        active.pop()
        return read(*arguments)

    monkeypatch.setattr(buckets, "read_range", slow)
    for step in range(2):
        for name, (count, _) in batches.shapes(step).items():
            slots = np.arange(count)
            actual, other = (each.read(name, step, slots) for each in (batches, expected))
            assert actual.keys() == other.keys()
            for field, values in actual.items():
                np.testing.assert_array_equal(values, other[field])
    assert max(counts) > 8 and batches._fetcher.fetched == expected._fetcher.fetched


@pytest.mark.cloud
def test_an_interrupted_build_resumes(small, corpus, bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(buckets, "_HEARTBEAT", 0.1)
    monkeypatch.setattr(buckets, "_STALE_AFTER", 0.5)
    folder = f"{bucket}/killed"
    config = small(corpus, folder)
    code = (
        "import pickle, sys; from xlj.data.rows.building import build_rows\n"
        "if __name__ == '__main__': build_rows(pickle.load(sys.stdin.buffer))"
    )
    script = tmp_path / "build.py"
    script.write_text(code)
    request = request_of(config)
    child = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE)
    child.stdin.write(pickle.dumps(request))
    child.stdin.close()
    while not any("/units/" in url for url in buckets.find_objects(f"{folder}/**/*.json")):
        assert child.poll() is None, "the build ended before it was killed"
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert to_path(f"{folder}/.lock").is_file() and not request.is_finished
    build_rows(request)
    assert_same_rows(RowStore(request.folder), prepare_rows(small(corpus, tmp_path / "here")))


@pytest.mark.cloud
def test_damage_in_a_bucket_is_reported(small, corpus, bucket, tmp_path):
    config = small(corpus, f"{bucket}/damaged", duplicates="keep", unit_bytes=1 << 20)
    store = prepare_rows(config)
    file = store.file("text.en", 0)
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    atomic.write(file, bytes(content))
    with pytest.raises(RuntimeError, match=r"00000\.rows: row 0 is damaged"):
        RowStore(store.path).read("text.en", "train", np.arange(3))
    atomic.write(file, bytes(content[:-1]))
    with pytest.raises(RuntimeError, match=r"00000\.rows has \d+ bytes instead of"):
        RowStore(store.path)


@pytest.mark.slow
@pytest.mark.parametrize("ranges", [True, False])
def test_rows_are_built_from_text_on_a_web_server(small, corpus, tmp_path, ranges):
    files = {f"/{f.relative_to(corpus)}": f.read_bytes() for f in corpus.rglob("*.t*")}
    expected = prepare_rows(small(corpus, tmp_path / "here", duplicates="keep"))
    with servers.web(files) as server:
        server.ranges, server.tags = ranges, dict.fromkeys(files, '"1"')
        config = small(server.url, tmp_path / "there", duplicates="keep")
        actual = prepare_rows(config)
        if ranges:
            assert_same_rows(actual, expected)
        else:  # each file is one unit, so lines have other neighbours
            totals = [sum(t.text.sentences for t in s.manifest.tasks) for s in (actual, expected)]
            assert totals[0] == totals[1]
        server.tags = dict.fromkeys(files, '"2"')
        assert request_of(config).folder != actual.path  # the server reports another ETag
        missing = dataclasses.replace(config.data, mono=(f"{server.url}/no/{{language}}.txt",))
        with pytest.raises(ConfigError, match="matches none of the 2 data.languages"):
            request_of(dataclasses.replace(config, data=missing))
