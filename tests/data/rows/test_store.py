"""Reading returns what was written, or raises an error that names the file and the row."""

import dataclasses
import errno
import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from xlj.data.rows.row_kind import Field, to_records
from xlj.data.rows.store import (
    Manifest,
    RowStore,
    RowStoreError,
    Split,
    TaskRows,
    TextCounts,
)

ROWS = {"train": 300, "held_out": 7}
SHARDS = {"train": (100, 0, 200), "held_out": (3, 4, 0)}


@pytest.fixture(params=["<u2", "<u4"])
def rows(request):
    rng = np.random.default_rng(0)
    high = 1 << 8 * np.dtype(request.param).itemsize
    return {
        name: rng.integers(0, high, (count, 16)).astype(request.param)
        for name, count in ROWS.items()
    }


@pytest.fixture
def path(tmp_path, rows):
    folder = tmp_path / "rows"
    (folder / "text.en").mkdir(parents=True)
    (tmp_path / "pairs.en-de" / "abc").mkdir(parents=True)
    (folder / "vocabulary.model").write_bytes(b"model")
    splits = {}
    for name, content in rows.items():
        digest = hashlib.sha256(content).hexdigest()
        splits[name] = Split(len(content), 9, 9, 9, digest, SHARDS[name])
    cuts = {name: np.cumsum([0, *SHARDS[name]]) for name in ROWS}
    fields = (
        Field("tokens", rows["train"].dtype.str, (16,), is_text=True),
        Field("score", "<f4", ()),
    )
    for shard in range(3):
        parts = [rows[name][cuts[name][shard] : cuts[name][shard + 1]] for name in ROWS]
        body = b"".join(
            to_records({"tokens": x, "score": x[:, 0] / 2}, fields).tobytes() for x in parts
        )
        (folder / "text.en" / f"0000{shard}.rows").write_bytes(body)
    empty = Split.without_rows(shards=1)
    (tmp_path / "pairs.en-de" / "abc" / "00000.rows").touch()
    manifest = Manifest(
        vocabulary_size=500,
        vocabulary_digest=hashlib.sha256(b"model").hexdigest(),
        recipe={"any": 1},
        tasks=(
            TaskRows("text.en", "text.en", "text", ("en",), 16, fields, **splits),
            TaskRows(
                "pairs.en-de",
                "../pairs.en-de/abc",
                "pairs",
                ("en", "de"),
                16,
                fields[:1],
                empty,
                empty,
                TextCounts(0, 0, {"too long": 2}, 5, "", {"no JSON": (1, "a: line 2")}),
            ),
        ),
    )
    (folder / "manifest.json").write_bytes(manifest.to_json())
    return folder


def test_rows_are_read_in_any_order(path, rows):
    opened = RowStore(path)
    for name in ROWS:
        order = np.random.default_rng(1).integers(0, ROWS[name], 1000)
        actual = opened.read("text.en", name, order)
        assert list(actual) == ["tokens", "score"]
        assert actual["tokens"].dtype == rows[name].dtype and actual["score"].dtype == np.float32
        assert np.array_equal(actual["tokens"], rows[name][order])
        assert np.array_equal(actual["score"], (rows[name][order, 0] / 2).astype(np.float32))
    empty = opened.read("pairs.en-de", "train", np.empty(0, np.int64))
    assert list(empty) == ["tokens"] and empty["tokens"].shape == (0, 16)


def test_the_manifest_is_read_unchanged(path):
    opened = RowStore(path)
    assert [task.name for task in opened.tasks("pairs")] == ["pairs.en-de"]
    assert opened.task("pairs.en-de").languages == ("en", "de")
    assert opened.task("text.en").text is None
    assert opened.task("pairs.en-de").text.malformed == {"no JSON": (1, "a: line 2")}
    assert json.loads(opened.manifest.to_json()) == json.loads(
        (path / "manifest.json").read_bytes()
    )


def test_reading_a_missing_row_or_split_is_an_error(path):
    opened = RowStore(path)
    for bad in (-1, 300):
        with pytest.raises(IndexError):
            opened.read("text.en", "train", np.array([0, bad]))
    with pytest.raises(ValueError, match="train, held_out"):
        opened.read("text.en", "test", np.array([0]))


def test_every_flipped_byte_is_detected(path, rows):
    file = path / "text.en" / "00002.rows"
    good = file.read_bytes()
    size = len(good) // 200
    for position in range(0, len(good), 97):
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        file.write_bytes(bad)
        row = position // size
        with pytest.raises(RowStoreError, match=rf"text.en/00002\.rows: row {row} is damaged"):
            RowStore(path).read("text.en", "train", np.arange(300))
        others = np.delete(np.arange(300), 100 + row)
        assert len(RowStore(path).read("text.en", "train", others)["tokens"]) == 299


def test_a_damaged_row_is_reported_with_its_place_and_remedy(path):
    file = path / "text.en" / "00001.rows"
    bad = bytearray(file.read_bytes())
    bad[-1] ^= 1
    file.write_bytes(bad)
    message = rf"00001\.rows: row 3 is damaged.*delete {file} and run python -m xlj\.prepare"
    with pytest.raises(RowStoreError, match=message):
        RowStore(path).read("text.en", "held_out", np.arange(7))


def test_files_of_the_wrong_size_are_detected_on_opening(path):
    file = path / "text.en" / "00002.rows"
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(RowStoreError, match="text.en/00002.rows has .* bytes instead of"):
        RowStore(path)
    file.unlink()
    with pytest.raises(RowStoreError, match="text.en/00002.rows is missing"):
        RowStore(path)


def test_a_file_that_fails_or_shrinks_while_rows_are_read_is_named(path, rows, monkeypatch):
    opened, file = RowStore(path), path / "text.en" / "00002.rows"
    good = opened.fetch("text.en", 90, 30)
    np.testing.assert_array_equal(good["tokens"], rows["train"][90:120])
    body = file.read_bytes()
    file.write_bytes(body[: 12 * (len(body) // 200) + 5])
    with pytest.raises(RowStoreError, match=r"text.en/00002\.rows has become shorter; delete"):
        opened.fetch("text.en", 90, 30)
    file.write_bytes(body)
    np.testing.assert_array_equal(opened.fetch("text.en", 90, 30), good)

    def stale(*_):
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "pread", stale)
    with pytest.raises(
        RowStoreError, match=r"text.en/00000\.rows cannot be read \(.*Stale file handle"
    ):
        opened.fetch("text.en", 90, 30)


def test_damaged_manifests_and_vocabularies_are_detected(path):
    good = (path / "manifest.json").read_text()
    for bad, message in (
        (good[:-30], "damaged"),
        (good.replace('"rows": 300', '"rows": 299'), "content hash"),
        (good.replace('"format": 3', '"format": 99'), "format 99"),
    ):
        assert bad != good
        (path / "manifest.json").write_text(bad)
        with pytest.raises(RowStoreError, match=message):
            RowStore(path)
    (path / "manifest.json").write_text(good)
    (path / "vocabulary.model").write_bytes(b"Model")
    with pytest.raises(RowStoreError, match="vocabulary.model is missing or damaged"):
        RowStore(path)
    (path / "manifest.json").unlink()
    with pytest.raises(RowStoreError, match="no finished rows"):
        RowStore(path)


def test_the_content_hash_depends_on_content_only(path):
    manifest = RowStore(path).manifest
    other_recipe = dataclasses.replace(manifest, recipe={"any": 2})
    assert other_recipe.content_hash == manifest.content_hash
    replace, (first, second) = dataclasses.replace, manifest.tasks
    for change, changes in (
        ({"train": replace(second.train, sha256="0")}, True),
        ({"fields": first.fields}, True),
        ({"text": replace(second.text, sentences=10)}, True),
        ({"text": replace(second.text, dropped={})}, True),
        ({"text": replace(second.text, input_bytes=10, too_long={"8": 1}, malformed={})}, False),
        ({"folder": "elsewhere"}, False),
    ):
        other = replace(manifest, tasks=(first, replace(second, **change)))
        assert (other.content_hash != manifest.content_hash) == changes, change


def test_reading_imports_numpy_only():
    code = (
        "import sys, xlj.data.rows.store; heavy = {'tensorflow', 'seqio', 'jax', 'sentencepiece', "
        "'ml_collections', 'tqdm'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
