"""The door to sentence vectors: a row a line, from a file or a pipe, or nothing at all."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from xlj import embed
from xlj.config import ConfigError
from xlj.downstream import pretrained, sentence_vectors
from xlj.downstream.sentence_vectors import Embedder

ROOT = Path(__file__).parents[1]
LINES = ["The cat sleeps.", "", "Good morning!", "Ich lese ein Buch."]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "lines.txt.gz"
    path.write_bytes(gzip.compress("\n".join(LINES).encode() + b"\n"))
    return path


@pytest.fixture
def run(checkpoint, monkeypatch, capsys):
    """Runs the door in this process; returns what it prints."""

    def door(*arguments):
        argv = ["xlj/embed.py", f"--checkpoint={checkpoint}", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", argv)
        embed.run(embed._flags())
        return capsys.readouterr()

    return door


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_row_for_each_line(run, text, tmp_path, checkpoint, dtype):
    output = tmp_path / "vectors.npy"
    run(f"--input={text}", f"--output={output}", f"--dtype={dtype}", "--layer=1", "--pooling=text")
    found = np.load(output)
    wanted = Embedder(pretrained.load(checkpoint), (1,), "text").embed(LINES)[0]
    assert found.dtype == dtype and not found[1].any() and found[0].any()
    np.testing.assert_array_equal(found, wanted.astype(dtype))


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


def test_no_line_is_no_row(run, tmp_path):
    (tmp_path / "empty.txt").touch()
    run(f"--input={tmp_path / 'empty.txt'}", f"--output={tmp_path / 'a.npy'}")
    assert np.load(tmp_path / "a.npy").shape == (0, 32)


def test_lost_ends_are_reported(run, tmp_path):
    (tmp_path / "long.txt").write_text("word " * 300 + "\nword\n")
    printed = run(f"--input={tmp_path / 'long.txt'}", f"--output={tmp_path / 'a.npy'}").err
    assert "1 sentences lost their end: too long for the model" in printed


def test_an_error_on_the_way_leaves_nothing_behind(run, text, tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_vectors, "_CHUNK", 2)
    made = Embedder.stream

    def failing(self, *arguments):
        for count, vectors in enumerate(made(self, *arguments)):
            yield vectors * (np.nan if count else 1)

    monkeypatch.setattr(Embedder, "stream", failing)
    with pytest.raises(ConfigError, match="the vector of line 3 does not fit"):
        run(f"--input={text}", f"--output={tmp_path / 'a.npy'}")
    assert [path.name for path in tmp_path.iterdir()] == [text.name]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--layer=4"], "there is no layer 4; the model has layers 0 to 3"),
        (["--output=/none/a.npy"], "--output=/none/a.npy: there is no such folder"),
        (["--input=/none.txt"], "/none.txt: cannot read it"),
        (["--input=BAD"], "bad.txt:2: the line is not UTF-8"),
        (["--pooling=max"], "argument --pooling: invalid choice: 'max'"),
    ],
)
def test_errors_come_before_any_work(run, text, tmp_path, arguments, message):
    (tmp_path / "bad.txt").write_bytes(b"a\n\xff\n")
    arguments = [a.replace("BAD", str(tmp_path / "bad.txt")) for a in arguments]
    with pytest.raises(ConfigError) as error:
        run(f"--input={text}", f"--output={tmp_path / 'a.npy'}", *arguments)
    assert message in str(error.value)
    assert not list(tmp_path.glob("a.npy*"))


def test_from_the_command_line_errors_are_one_line():
    command = [sys.executable, "-m", "xlj.embed", "--output=a.npy"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == "error: the following arguments are required: --checkpoint\n"
