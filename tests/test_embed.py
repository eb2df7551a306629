"""`xlj.embed` writes one vector per line of a file or a pipe, or no output after an error."""

import contextlib
import functools
import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from xlj import embed
from xlj.config import ConfigError
from xlj.inference import pretrained
from xlj.io import file_ranges
from xlj.retrieval import sentence_embedder
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
def test_each_line_gets_one_row(run, text, tmp_path, checkpoint, dtype):
    output = tmp_path / "vectors.npy"
    run(f"--input={text}", f"--output={output}", f"--dtype={dtype}", "--layer=1", "--pooling=text")
    vectors = np.load(output)
    expected = Embedder(pretrained.load(checkpoint), (1,), "text").embed(LINES)[0]
    assert vectors.dtype == dtype and not vectors[1].any() and vectors[0].any()
    np.testing.assert_array_equal(vectors, expected.astype(dtype))


@pytest.mark.parametrize("way", ["file", "pipe", "shards"])
def test_a_column_of_sentences_is_embedded_without_ids_and_header(run, tmp_path, monkeypatch, way):
    """As in files of Leipzig and Tatoeba; the vectors are those of the sentences alone."""
    monkeypatch.setattr(file_ranges.split_files, "__defaults__", (30,))
    (tmp_path / "plain").write_text("\n".join([*LINES, ""]))
    ids = "".join(f"{n}\teng\t{line}\n" if line else "\n" for n, line in enumerate(LINES))
    (tmp_path / "ids").write_text(f"id\tlang\ttext\n{ids}5\teng\n<range>\n")
    run(f"--input={tmp_path / 'plain'}", f"--output={tmp_path / 'plain.npy'}")
    path, output = tmp_path / "ids", tmp_path / "out.npy"
    flags = [f"--output={output}", "--malformed=skip"]
    if way == "pipe":
        os.mkfifo(tmp_path / "pipe")
        threading.Thread(
            target=lambda: (tmp_path / "pipe").write_bytes(path.read_bytes()), daemon=True
        ).start()
        path = tmp_path / "pipe"
    if way == "shards":
        flags = [f"--output={tmp_path / 'parts'}", "--malformed=skip", "--shard=1/1"]
    printed = run(f"--input={path}", *flags).err
    assert "columns are 1 numbers (3), 2 language codes (eng), 3 text (Ich lese" in printed
    assert "skipped: wrong number of columns: 2 (first: " in printed
    parts = sorted((tmp_path / "parts").glob("*.npy")) if way == "shards" else [output]
    vectors = np.concatenate([np.load(part) for part in parts])
    expected = np.load(tmp_path / "plain.npy")
    assert len(parts) > 2 or way != "shards"
    np.testing.assert_allclose(vectors[:4], expected, atol=1e-6)
    assert len(vectors) == 6 and np.isnan(vectors[4:]).all()


@pytest.mark.parametrize("shard", [False, True])
def test_skipped_lines_are_rows_of_nan(run, tmp_path, shard):
    text, output = tmp_path / "text", tmp_path / ("out" if shard else "out.npy")
    text.write_bytes(b"one\n\xe9\nthree\n\nfi\0ve\n" + b"x" * 1_100_000 + b"\nlast")
    flags = [f"--input={text}", f"--output={output}", *(["--shard=1/1"] if shard else [])]
    with pytest.raises(ConfigError, match=r"text:2: the line is not UTF-8; .*--malformed=skip"):
        run(*flags)
    stderr = run(*flags, "--malformed=skip").err
    vectors = np.load(next(output.glob("*.npy")) if shard else output)
    skipped = [False, True, False, False, True, True, False]
    assert np.isnan(vectors).any(1).tolist() == np.isnan(vectors).all(1).tolist() == skipped
    assert f"skipped: invalid UTF-8: 1 (first: {text}:2)" in stderr and f"{text}:5" in stderr


def test_standard_input_is_read_without_the_input_flag(run, text, tmp_path, monkeypatch):
    run(f"--input={text}", f"--output={tmp_path / 'a.npy'}")
    saved_stdin = os.dup(0)
    try:
        with (tmp_path / "plain.txt").open("wb+") as file:
            file.write("\n".join(LINES).encode())  # the last line has no line break
            file.seek(0)
            os.dup2(file.fileno(), 0)
        run(f"--output={tmp_path / 'b.npy'}")
    finally:
        os.dup2(saved_stdin, 0)
        os.close(saved_stdin)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_a_pipe_is_read_once(run, text, tmp_path):
    run(f"--input={text}", f"--output={tmp_path / 'a.npy'}")
    reader, writer = os.pipe()
    os.write(writer, "\n".join(LINES).encode())
    os.close(writer)
    run(f"--input=/dev/fd/{reader}", f"--output={tmp_path / 'b.npy'}")
    os.close(reader)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_an_output_that_is_a_symbolic_link_stays_a_link(run, text, tmp_path):
    (tmp_path / "link.npy").symlink_to("a.npy")
    run(f"--input={text}", f"--output={tmp_path / 'link.npy'}")
    assert (tmp_path / "link.npy").is_symlink() and np.load(tmp_path / "a.npy").shape == (4, 32)


def test_an_empty_file_gives_no_rows(run, tmp_path):
    (tmp_path / "empty.txt").touch()
    run(f"--input={tmp_path / 'empty.txt'}", f"--output={tmp_path / 'a.npy'}")
    assert np.load(tmp_path / "a.npy").shape == (0, 32)


def test_truncated_sentences_are_reported(run, tmp_path):
    (tmp_path / "long.txt").write_text("word " * 300 + "\nword\n")
    printed = run(f"--input={tmp_path / 'long.txt'}", f"--output={tmp_path / 'a.npy'}").err
    assert "sentences truncated because they are too long for the model: 1" in printed


def test_an_error_during_the_work_leaves_no_files(run, text, tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_embedder, "_CHUNK", 2)
    stream = Embedder.stream

    def failing(self, *arguments):
        for count, vectors in enumerate(stream(self, *arguments)):
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


def test_command_line_errors_are_one_line():
    command = [sys.executable, "-m", "xlj.embed", "--output=a.npy"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == "error: the following arguments are required: --checkpoint\n"


def test_an_interrupt_stops_the_command_at_once_and_leaves_no_output(checkpoint, tmp_path):
    """The command is computing batches then, and a normal exit of Python sometimes crashed."""
    (tmp_path / "many.txt").write_text("The cat sleeps on the mat.\n" * 500_000)
    command = [sys.executable, "-m", "xlj.embed", f"--checkpoint={checkpoint}"]
    command += [f"--input={tmp_path / 'many.txt'}", f"--output={tmp_path / 'a.npy'}"]
    # The child inherits the handler; under `pytest &` it would ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    signal.signal(signal.SIGINT, before)
    while not list(tmp_path.glob("a.npy.*")):  # until the command has started to write
        assert child.poll() is None
        time.sleep(0.1)
    for _ in range(6):  # Python ignores an interrupt in a callback of its garbage collector
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            errors = child.communicate(timeout=10)[1]
            break
    assert child.returncode == 130 and errors.endswith(b"interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["many.txt"]
