"""Rows and checkpoints of older formats can be read, or the error explains how to convert them."""

import json
import tarfile
from pathlib import Path

import jax
import make_formats
import numpy as np
import pytest

from xlj.checkpoints import digests, reading
from xlj.checkpoints.reading import CheckpointError
from xlj.config import parse
from xlj.data.rows import store as stores
from xlj.data.rows.store import RowStore, RowStoreError
from xlj.sharding import meshes
from xlj.training import loop, start

HERE = Path(__file__).parent
ROWS = sorted(HERE.glob("rows_*.tar.xz"))
CHECKPOINTS = sorted(HERE.glob("checkpoint_[0-9].tar.xz"))


def unpack(archive, folder):
    """Returns the folder of the content, and the values that were recorded when it was written."""
    with tarfile.open(archive) as file:
        options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not in 3.11.2
        file.extractall(folder, **options)
    return folder / "content", json.loads((folder / "expected.json").read_bytes())


def archive_names(files):
    return [file.name.partition(".")[0] for file in files]


def test_every_format_has_a_small_archive():
    """Rows of formats 1 and 2 have no archive, because these formats were never published."""
    assert archive_names(ROWS) == [f"rows_{n}" for n in range(3, stores.FORMAT + 1)]
    assert archive_names(CHECKPOINTS) == [f"checkpoint_{n}" for n in range(1, reading.FORMAT + 1)]
    for file in (*ROWS, *CHECKPOINTS):
        assert file.stat().st_size < 24_000


@pytest.mark.parametrize("archive", ROWS, ids=archive_names(ROWS))
def test_rows_of_every_format_can_be_read(archive, tmp_path):
    cache, expected = unpack(archive, tmp_path)
    store = RowStore(cache / expected["name"])
    assert store.manifest.content_hash == expected["content_hash"]
    assert store.manifest.languages == ["en", "de"]
    for task in store.manifest.tasks:
        rows = store.read(task.name, "train", np.arange(task.train.rows))["tokens"]
        assert rows.shape == (task.train.rows, 16) and (rows[:, 0] == 0).all()


@pytest.mark.parametrize("archive", CHECKPOINTS, ids=archive_names(CHECKPOINTS))
def test_checkpoints_of_every_format_can_be_read(archive, tmp_path):
    folder, expected = unpack(archive, tmp_path)
    checkpoint = reading.find(folder)
    reading.verify(checkpoint)
    params = reading.restore_params(checkpoint, meshes.one_device())
    assert digests.digests(params) == expected["digests"]["params"]
    assert reading.read_vocabulary(checkpoint).digest == checkpoint.meta["vocabulary"]
    assert checkpoint.step == make_formats.STEPS and checkpoint.digest() == expected["digest"]


@pytest.mark.slow
def test_training_resumes_from_archived_rows_and_an_archived_checkpoint(tmp_path, monkeypatch):
    cache, expected = unpack(ROWS[-1], tmp_path / "rows")
    folder, _ = unpack(CHECKPOINTS[-1], tmp_path / "checkpoint")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    folder.rename(tmp_path / "run" / "checkpoints" / str(make_formats.STEPS))
    config = make_formats.config(tmp_path, cache)
    config.train.steps = make_formats.STEPS + 1
    devices = jax.devices()[:1]
    monkeypatch.setattr(jax, "devices", lambda *_: devices)
    store = RowStore(cache / expected["name"])
    outcome = loop.train(start.prepare(parse(config), tmp_path / "run", store))
    assert outcome.step == config.train.steps


def test_errors_for_other_formats_explain_how_to_continue(tmp_path, monkeypatch):
    cache, expected = unpack(ROWS[-1], tmp_path / "rows")
    manifest = cache / expected["name"] / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 3', '"format": 2', 1))
    with pytest.raises(
        RowStoreError,
        match=r"rows have format 2, but .* reads format 3; delete .*xlj\.prepare again",
    ):
        RowStore(manifest.parent)
    folder, _ = unpack(CHECKPOINTS[-1], tmp_path / "checkpoint")
    monkeypatch.setattr(reading, "FORMAT", 9)
    with pytest.raises(
        CheckpointError, match=r"format 1, .* reads format 9.*xlj\.convert export.*init_"
    ):
        reading.find(folder)
