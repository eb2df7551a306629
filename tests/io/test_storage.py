"""Storage errors are one line, also in child processes; other errors have a traceback."""

import errno
import os

import pytest

from xlj.cli.command import run
from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.io import files, storage
from xlj.io.processes import in_child


def fail(code, place=None):
    raise OSError(code, os.strerror(code), place)


@pytest.mark.parametrize(
    "code, place, message",
    [
        (errno.ESTALE, "a/b", "a/b: Stale file handle"),
        (errno.EIO, None, "storage: Input/output error"),
        (errno.EACCES, "a/b", "a/b: Permission denied"),
        (errno.EDQUOT, "a/b", "cannot write a/b: Disk quota exceeded"),
        (errno.ENOSPC, None, "cannot write the output: No space left on device"),
    ],
)
def test_a_command_prints_a_storage_error_as_one_line(code, place, message, capsys):
    assert run(Parser("x", "doc"), lambda flags: fail(code, place), []) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


@pytest.mark.parametrize("code, place", [(errno.EACCES, None), (errno.ENOENT, "a"), (None, None)])
def test_errors_that_are_not_of_the_storage_are_raised(code, place):
    error = OSError(code, "x", place) if code else OSError("x")
    assert storage.describe_storage_error(error) == ""
    if code:
        with pytest.raises(OSError):
            run(Parser("x", "doc"), lambda flags: fail(code, place), [])


def test_storage_errors_of_a_child_process_are_config_errors():
    with pytest.raises(ConfigError, match="^a/b: Stale file handle$"):
        in_child("building", fail, errno.ESTALE, "a/b")
    with pytest.raises(RuntimeError, match="(?s)building failed:.*FileNotFoundError"):
        in_child("building", fail, errno.ENOENT, "a/b")


def test_errors_for_missing_files_name_similar_files(tmp_path):
    for name in ("yo.txt.gz", "yoruba.txt", "corpus.tsv"):
        (tmp_path / name).touch()
    hint = storage.what_is_there
    assert hint(tmp_path / "yo.txt") == f"; there is {tmp_path}/yo.txt.gz"
    assert hint(tmp_path / "yo.tsv") == f"; there is {tmp_path}/yo.txt.gz"
    assert hint(f"{tmp_path}/corpos.tsv") == f"; there is {tmp_path}/corpus.tsv"
    assert hint(tmp_path / "sw.txt") == hint(tmp_path / "yo.txt.gz") == ""
    assert hint(tmp_path / "none/yo.txt") == f"; there is no folder {tmp_path}/none"
    for other in ("gs://bucket/yo.txt", "phrasebook:yo", f"{tmp_path}/*.tsv"):
        assert hint(other) == ""
    with pytest.raises(ConfigError, match=r"yo.txt: cannot read .*; there is .*/yo.txt.gz$"):
        list(files.lines(tmp_path / "yo.txt"))
