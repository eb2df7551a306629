"""The command of sentence vectors: one row per line, from a file or a pipe, or no output."""

import contextlib
import functools
import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from xlj import embed
from xlj.config import ConfigError
from xlj.inference import pretrained
from xlj.retrieval import embedder
from xlj.retrieval.embedder import Embedder

ROOT = Path(__file__).parents[1]
LINES = ["The cat sleeps.", "", "Good morning!", "Ich lese ein Buch."]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "lines.txt.gz"
    path.write_bytes(gzip.compress("\n".join(LINES).encode() + b"\n"))
    return path


@pytest.fixture
def run(checkpoint, call):
    """Runs the command in this process; returns what it prints."""
    return functools.partial(call, embed.main, f"--checkpoint={checkpoint}")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_row_for_each_line(run, text, tmp_path, checkpoint, dtype):
    output = tmp_path / "vectors.npy"
    run(f"--input={text}", f"--output={output}", f"--dtype={dtype}", "--layer=1", "--pooling=text")
    found = np.load(output)
    wanted = Embedder(pretrained.load(checkpoint), (1,), "text").embed(LINES)[0]
    assert found.dtype == dtype and not found[1].any() and found[0].any()
    np.testing.assert_array_equal(found, wanted.astype(dtype))


@pytest.mark.parametrize("shard", [False, True])
def test_skipped_lines_are_rows_of_nan(run, tmp_path, shard):
    text, output = tmp_path / "text", tmp_path / ("out" if shard else "out.npy")
    text.write_bytes(b"one\n\xe9\nthree\n\nfi\0ve\n" + b"x" * 1_100_000 + b"\nlast")
    flags = [f"--input={text}", f"--output={output}", *(["--shard=1/1"] if shard else [])]
    with pytest.raises(ConfigError, match=r"text:2: the line is not UTF-8; .*--malformed=skip"):
        run(*flags)
    stderr = run(*flags, "--malformed=skip").err
    found = np.load(next(output.glob("*.npy")) if shard else output)
    empty = [False, True, False, False, True, True, False]
    assert np.isnan(found).any(1).tolist() == np.isnan(found).all(1).tolist() == empty
    assert f"skipped: invalid UTF-8: 1 (first: {text}:2)" in stderr and f"{text}:5" in stderr


def test_standard_input_is_read_where_no_file_is_named(run, text, tmp_path, monkeypatch):
    run(f"--input={text}", f"--output={tmp_path / 'a.npy'}")
    kept = os.dup(0)
    try:
        with (tmp_path / "plain.txt").open("wb+") as file:
            file.write("\n".join(LINES).encode())  # the last line may lack its end
            file.seek(0)
            os.dup2(file.fileno(), 0)
        run(f"--output={tmp_path / 'b.npy'}")
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_a_pipe_is_read_once(run, text, tmp_path):
    run(f"--input={text}", f"--output={tmp_path / 'a.npy'}")
    reader, writer = os.pipe()
    os.write(writer, "\n".join(LINES).encode())
    os.close(writer)
    run(f"--input=/dev/fd/{reader}", f"--output={tmp_path / 'b.npy'}")
    os.close(reader)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_a_link_stays_one(run, text, tmp_path):
    (tmp_path / "link.npy").symlink_to("a.npy")
    run(f"--input={text}", f"--output={tmp_path / 'link.npy'}")
    assert (tmp_path / "link.npy").is_symlink() and np.load(tmp_path / "a.npy").shape == (4, 32)


def test_no_line_is_no_row(run, tmp_path):
    (tmp_path / "empty.txt").touch()
    run(f"--input={tmp_path / 'empty.txt'}", f"--output={tmp_path / 'a.npy'}")
    assert np.load(tmp_path / "a.npy").shape == (0, 32)


def test_lost_ends_are_reported(run, tmp_path):
    (tmp_path / "long.txt").write_text("word " * 300 + "\nword\n")
    printed = run(f"--input={tmp_path / 'long.txt'}", f"--output={tmp_path / 'a.npy'}").err
    assert "sentences truncated because they are too long for the model: 1" in printed


def test_an_error_on_the_way_leaves_nothing_behind(run, text, tmp_path, monkeypatch):
    monkeypatch.setattr(embedder, "_CHUNK", 2)
    made = Embedder.stream

    def failing(self, *arguments):
        for count, vectors in enumerate(made(self, *arguments)):
            yield vectors * (np.nan if count else 1)

    monkeypatch.setattr(Embedder, "stream", failing)
    with pytest.raises(ConfigError, match="the vector of line 3 is too large for float32"):
        run(f"--input={text}", f"--output={tmp_path / 'a.npy'}")
    assert [path.name for path in tmp_path.iterdir()] == [text.name]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--layer=4"], "layer 4 does not exist; the model has layers 0 to 3"),
        (["--output=/none/a.npy"], "--output=/none/a.npy: the folder"),
        (["--output=FOLDER"], "this is a folder; name a file in it"),
        (["--output=DANGLING"], "the folder"),
        (["--output=CIRCLE"], "the symbolic links of this path form a cycle"),
        (["--output=/dev/null"], "--output=/dev/null: this is a pipe or a device, not a file"),
        (["--input=/none.txt"], "/none.txt: cannot read this file"),
        (["--input=BAD"], "bad.txt:2: the line is not UTF-8"),
        (["--pooling=max"], "argument --pooling: invalid choice: 'max'"),
    ],
)
def test_errors_come_before_any_work(run, text, tmp_path, arguments, message):
    (tmp_path / "bad.txt").write_bytes(b"a\n\xff\n")
    arguments = [a.replace("BAD", str(tmp_path / "bad.txt")) for a in arguments]
    arguments = [a.replace("FOLDER", str(tmp_path)) for a in arguments]
    for name, place in (("DANGLING", "/none/a.npy"), ("CIRCLE", "CIRCLE")):
        (tmp_path / name).symlink_to(place)
        arguments = [a.replace(name, str(tmp_path / name)) for a in arguments]
    with pytest.raises(ConfigError) as error:
        run(f"--input={text}", f"--output={tmp_path / 'a.npy'}", *arguments)
    assert message in str(error.value)
    assert not list(tmp_path.glob("a.npy*"))


def test_from_the_command_line_errors_are_one_line():
    command = [sys.executable, "-m", "xlj.embed", "--output=a.npy"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == "error: the following arguments are required: --checkpoint\n"


def test_an_interrupt_ends_at_once_and_writes_nothing(checkpoint, tmp_path):
    """Also while batches are computed, when a normal exit of Python sometimes crashed."""
    (tmp_path / "many.txt").write_text("The cat sleeps on the mat.\n" * 500_000)
    command = [sys.executable, "-m", "xlj.embed", f"--checkpoint={checkpoint}"]
    command += [f"--input={tmp_path / 'many.txt'}", f"--output={tmp_path / 'a.npy'}"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # `pytest &` ignores it
    child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    signal.signal(signal.SIGINT, before)
    while not list(tmp_path.glob("a.npy.*")):  # it has begun
        assert child.poll() is None
        time.sleep(0.1)
    for _ in range(6):  # Python ignores one that comes in a callback of its garbage collector
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            errors = child.communicate(timeout=10)[1]
            break
    assert child.returncode == 130 and errors.endswith(b"interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["many.txt"]
