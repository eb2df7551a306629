"""An unusable workdir or a full disk is a one-line error; written data is not lost."""

import contextlib
import errno
import math
import os
import resource
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from xlj.checkpoints import metrics, reading
from xlj.checkpoints.workdir import only_run
from xlj.config import ConfigError, parse
from xlj.io import atomic
from xlj.io.atomic import GrowingFiles
from xlj.training import loop, start

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("below", ["", "/run", "/a/b"])
def test_a_file_cannot_be_a_workdir(tmp_path, below):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--workdir=.*file.* cannot be written \("):
        with only_run(Path(f"{tmp_path}/file{below}")):
            raise AssertionError("the run has started")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
@pytest.mark.parametrize("method", ["mkdir", "open"])
def test_a_workdir_that_cannot_be_written_to_is_an_error(tmp_path, monkeypatch, code, method):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(
        ConfigError, match=rf"--workdir=.*\({os.strerror(code)}\); set it to a writable folder"
    ):
        with only_run(tmp_path / "run"):
            raise AssertionError("the run has started")


@pytest.mark.parametrize("flag", ["--workdir", "--output"])
def test_a_workdir_has_one_run_at_a_time(tmp_path, flag):
    message = rf"another run is using {flag}={tmp_path}; wait for it, stop it, or use"
    with only_run(tmp_path):
        with pytest.raises(ConfigError, match=message), only_run(tmp_path, flag):
            raise AssertionError("the second run has started")
        done = subprocess.run(  # the lock holds for other processes too
            [sys.executable, "-c", _SECOND, tmp_path, flag], capture_output=True, text=True
        )
        assert "another run is using" in done.stderr, done
    with only_run(tmp_path):
        pass


_SECOND = """
import sys
import time
from pathlib import Path
from xlj.checkpoints.workdir import only_run
with only_run(Path(sys.argv[1]), sys.argv[2]):
    pass
"""


def test_errors_of_the_run_are_not_reported_as_errors_of_the_workdir(tmp_path):
    with pytest.raises(OSError, match="from the run"), only_run(tmp_path):
        raise OSError("from the run")


@pytest.mark.parametrize(
    "command",
    [
        ["xlj.train", "--config=configs/quickstart.py:tiny", "--config.data.cache={}/rows"],
        ["xlj.finetune", "--config=configs/finetune/xnli.py", "--config.init_from=none"],
    ],
)
def test_an_unusable_workdir_is_reported_before_any_work(tmp_path, command):
    (tmp_path / "file").touch()
    arguments = [argument.format(tmp_path) for argument in command]
    done = subprocess.run(
        [sys.executable, "-m", *arguments, f"--workdir={tmp_path}/file/run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: --workdir={tmp_path}/file/run: ")
    assert done.stderr.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_metrics_that_cannot_be_written_are_an_error(tmp_path):
    writer = metrics.Metrics(GrowingFiles(tmp_path), 0)
    writer.log(1, {"x": 1.0})
    with contextlib.suppress(OSError), open("/dev/full", "w") as full:
        original, writer._file = writer._file, full
        with pytest.raises(ConfigError, match=r"cannot write .*metrics\.jsonl: No space left"):
            writer.log(2, {"x": 2.0})
        writer._file = original
    with contextlib.suppress(OSError), open("/dev/full", "wb") as full:
        writer._events._writer._writer = full
        with pytest.raises(ConfigError, match="cannot write .*tensorboard: No space left"):
            writer.log(3, {"x": 2.0})
    assert [line["step"] for line in metrics.read(tmp_path)] == [1, 3]


def test_tensorboard_reads_the_logged_values(tmp_path, monkeypatch):
    """A resumed run hides the steps that it repeats, also those that it has not logged yet."""
    # With this module TensorBoard imports no TensorFlow, which other tests must not find imported.
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", types.ModuleType("notf"))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for begin, steps in ((0, (1, 2, 3)), (1, (2,))):
        writer = metrics.Metrics(GrowingFiles(tmp_path), begin)
        for step in steps:
            writer.log(step, {"x/y": step / 2 + begin, "z": math.nan})
            sizes = [f.stat().st_size for f in (tmp_path / "tensorboard").iterdir()]
            assert min(sizes) > 100  # before the file is closed
        writer.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"), {"scalars": 0})
    events.Reload()
    assert events.FirstEventTimestamp() <= time.time()
    scalars = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in ("x/y", "z")}
    assert scalars["x/y"] == [(1, 0.5), (2, 2.0)]
    assert [step for step, value in scalars["z"] if math.isnan(value)] == [1, 2]


def test_a_config_that_cannot_be_written_is_an_error(tiny, store, tmp_path, monkeypatch):
    def refuse(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic, "write", refuse)
    with pytest.raises(ConfigError, match=r"cannot write .*config\.json: No space left on device"):
        loop.train(start.prepare(parse(tiny), tmp_path, store))


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_leaves_the_previous_one(
    tiny, store, tmp_path, capsys, caplog
):
    """From the last evaluation on, the disk accepts no file of more than 16 KB."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def probe(state, check):
        if int(state.progress.step) == tiny.train.steps:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, limits[1]))
        return {}

    try:
        with pytest.raises(
            ConfigError, match="cannot write checkpoints to .*/checkpoints: File too large"
        ):
            loop.train(start.prepare(parse(tiny), tmp_path, store), [probe])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "Traceback" not in capsys.readouterr().err + caplog.text
    assert reading.find(tmp_path).step in (2, 4)  # 4 may still have been written
    assert loop.train(start.prepare(parse(tiny), tmp_path, store)).finished
    assert reading.find(tmp_path).step == 6
