"""A run with its workdir in a bucket (of an emulator) equals a local run, also after a kill."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import servers

from xlj.checkpoints import metrics, reading, stored_models
from xlj.checkpoints.workdir import only_run, resolve
from xlj.config import ConfigError, parse
from xlj.io import atomic, storage
from xlj.io.storage import to_path
from xlj.training import loop, start

pytestmark = pytest.mark.cloud


@pytest.fixture(scope="module")
def bucket():
    with servers.bucket("gs") as (url, _):
        yield url


@pytest.fixture
def short(tiny):
    """`tiny` with a checkpoint after every second step."""
    tiny.train.checkpoint_every, tiny.train.log_every = 2, 1
    return tiny


def lines(workdir):
    """Returns the lines of metrics without times."""
    return [
        {key: value for key, value in line.items() if not key.startswith("time/")}
        for line in metrics.read(workdir)
    ]


def digests(workdir):
    return reading.latest(workdir).meta["digests"]


def test_a_run_equals_a_local_run_and_resumes(short, store, bucket, tmp_path):
    workdir = to_path(f"{bucket}/run")
    last, short.train.steps = short.train.steps, 3
    short.optimizer.schedule = "constant"  # so that a shorter run has equal steps
    part = loop.train(start.prepare(parse(short), workdir, store))
    assert part.step == 3 and reading.steps(workdir) == [2, 3]
    assert part.checkpoint == workdir / "checkpoints/3"
    short.train.steps = last
    actual = loop.train(start.prepare(parse(short), workdir, store))
    whole = loop.train(start.prepare(parse(short), tmp_path, store))
    assert actual.finished and actual.step == whole.step
    assert digests(workdir) == digests(tmp_path)
    assert (
        lines(workdir)
        == lines(tmp_path)
        == [{k: v for k, v in line.items() if not k.startswith("time/")} for line in whole.metrics]
    )
    assert len(storage.find_files_below(workdir, "tensorboard/*")) == 2  # one file per start
    assert json.loads((workdir / "config.json").read_bytes())["train"]["steps"] == last
    assert loop.train(start.prepare(parse(short), workdir, store)) == actual  # finished


def test_a_model_in_a_bucket_can_be_loaded_and_used_by_init_from(short, store, bucket, tmp_path):
    workdir = to_path(f"{bucket}/model")
    loop.train(start.prepare(parse(short), workdir, store))
    model = stored_models.find(str(workdir))
    leaf = next(iter(model.leaves.values()))
    assert np.asarray(leaf).shape == leaf.shape
    assert model.folder == workdir / f"checkpoints/{short.train.steps}"
    assert model.vocabulary().digest == store.manifest.vocabulary_digest
    assert reading.find(str(model.folder)).step == short.train.steps
    short.train.steps = 1
    loop.train(start.prepare(parse(short), tmp_path / "fresh", store))
    short.init_from = str(workdir)
    loop.train(start.prepare(parse(short), tmp_path / "from", store))
    assert digests(tmp_path / "fresh") != digests(tmp_path / "from")
    first, second = (reading.latest(at).meta["config"] for at in (workdir, tmp_path / "from"))
    assert (first["init_from"], second["init_from"]) == ("", str(workdir))
    with pytest.raises(ConfigError, match=r"init_from=gs://.*/none contains no model"):
        stored_models.find(f"{bucket}/none", "init_from")


def test_a_damaged_checkpoint_is_moved_away(short, store, bucket, tmp_path, capsys):
    workdir = to_path(f"{bucket}/damaged")
    loop.train(start.prepare(parse(short), workdir, store))
    last = short.train.steps
    params = workdir / f"checkpoints/{last}/params"
    (file,) = storage.find_files_below(params, "**/manifest.ocdbt")[:1]
    atomic.write(file, file.read_bytes()[:-7] + b"damaged")
    reading.move_damaged(workdir)
    assert f"it was moved to {workdir}/damaged/{last}" in capsys.readouterr().out
    assert reading.steps(workdir)[-1] < last
    assert storage.exists(workdir / f"damaged/{last}/meta")
    assert not storage.exists(workdir / f"checkpoints/{last}")
    loop.train(start.prepare(parse(short), tmp_path, store))
    loop.train(start.prepare(parse(short), workdir, store))
    assert digests(workdir) == digests(tmp_path)


def test_a_server_error_is_not_reported_as_damage(short, store, bucket, monkeypatch):
    """The error of the server is raised instead."""

    def fail(_):
        raise OSError("HTTP 503")

    workdir = to_path(f"{bucket}/unanswered")
    loop.train(start.prepare(parse(short), workdir, store))
    monkeypatch.setattr(reading, "orbax_path", fail)
    description = r"its description \(meta\) from the bucket \(HTTP 503\); try again later$"
    with pytest.raises(ConfigError, match=description):
        reading.move_damaged(workdir)
    with pytest.raises(ConfigError, match=r"cannot read .*\(HTTP 503\); try again later$"):
        stored_models.find(str(workdir))
    monkeypatch.setattr(storage.Url, "is_file", fail)
    with pytest.raises(ConfigError, match=r"init_from=gs://.* cannot be read \(HTTP 503\)$"):
        stored_models.find(str(workdir), "init_from")


@pytest.mark.parametrize("name", ["r[1]", "r*", "r#1", "r?x"])
def test_workdirs_with_special_characters_of_urls_are_refused(name):
    with pytest.raises(
        ConfigError, match=r"workdir=gs://b/r.*: the character . has a special meaning in a URL"
    ):
        resolve("workdir", f"gs://b/{name}")


def test_metrics_are_uploaded_during_a_run_and_a_temporary_error_does_not_end_it(
    bucket, monkeypatch
):
    def fail(*_):
        raise OSError("HTTP 503")

    workdir, upload = to_path(f"{bucket}/lines"), storage.upload
    monkeypatch.setattr(atomic, "_UPLOAD_INTERVAL", 0.0)
    writer = metrics.Metrics(atomic.GrowingFiles(workdir), 0)
    writer.log(1, {"x": 1.0})
    assert metrics.read(workdir) == [{"step": 1, "x": 1.0}]
    monkeypatch.setattr(storage, "upload", fail)
    writer.log(2, {"x": 2.0})
    with pytest.raises(ConfigError, match=r"cannot write gs://.*/lines/metrics\.jsonl: HTTP 503"):
        writer._files.send(now=True)
    monkeypatch.setattr(storage, "upload", upload)
    writer.log(3, {"x": 3.0})
    assert [line["step"] for line in metrics.read(workdir)] == [1, 2, 3]
    writer.close()
    writer._files.close()


def test_a_lock_is_released_and_a_missing_bucket_is_reported(bucket):
    workdir = to_path(f"{bucket}/locked")
    with pytest.raises(ValueError, match="from the run"), only_run(workdir):
        assert (workdir / "lock").is_file()
        raise ValueError("from the run")
    assert not (workdir / "lock").is_file()
    with pytest.raises(ConfigError, match="cannot write gs://not-there/run/lock: "):
        with only_run(to_path("gs://not-there/run")):
            raise AssertionError("the run has started")


CODE = """
import json, sys
import xlj
from xlj import config as schema
config = schema.default()
config.update(json.loads(sys.argv[1]))
xlj.pretrain(config, sys.argv[2])
"""


def test_a_killed_run_in_a_bucket_ends_with_the_same_bits(short, bucket, tmp_path):
    short.train.steps = 24
    workdir = to_path(f"{bucket}/killed")
    command = [sys.executable, "-c", CODE, short.to_json()]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, timeout=300)
    process = subprocess.Popen([*command, str(workdir)])
    while not (steps := reading.steps(workdir)) or steps[-1] < 6:
        assert process.poll() is None, "the run ended before it was killed"
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert reading.steps(workdir)[-1] < 24
    (workdir / "lock").unlink()  # instead of waiting a minute
    subprocess.run([*command, str(workdir)], check=True, timeout=300)
    assert digests(workdir) == digests(tmp_path / "whole")
    assert lines(workdir) == lines(tmp_path / "whole")
