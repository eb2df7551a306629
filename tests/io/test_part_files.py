"""Folders in parts: missing parts are written, others stay, parts of other jobs are refused."""

import gzip
import hashlib
import json

import pytest

from xlj.config import ConfigError
from xlj.io import atomic, file_ranges
from xlj.io.part_files import PartFiles

LINES = [f"line {k} é" for k in range(100)]


def write_parts(parts, most=99):
    written = parts.remaining()[:most]
    for part in written:
        atomic.write(parts.file(part), b"%d" % part)
        parts.mark_complete(part, rows=part)
    return written


def test_shards_write_each_part_once_and_the_last_shard_writes_the_manifest(tmp_path):
    folder, job = tmp_path / "out", {"of": "a"}
    shards = [PartFiles(folder, job, 7, ".x", (i, 3)) for i in (1, 2, 3)]
    assert [write_parts(each) for each in shards[:2]] == [[0, 3, 6], [1, 4]]
    assert shards[0].finish() is None and shards[0].count_missing() == 2
    assert write_parts(shards[2], most=1) == [2]
    (folder / "part-00002.x").write_bytes(b"longer")  # a truncated part, or a part of another job
    assert write_parts(PartFiles(folder, job, 7, ".x", (3, 3))) == [2, 5]
    files = shards[1].finish()
    assert files == json.loads((folder / "manifest.json").read_text())["files"]
    assert [each["rows"] for each in files] == list(range(7))
    assert files[5]["sha256"] == hashlib.sha256(b"5").hexdigest()


def test_parts_of_another_job_are_refused(tmp_path):
    folder = tmp_path / "out"
    PartFiles(folder, {"of": "a"}, 7, ".x", (1, 3))
    with pytest.raises(ConfigError, match="values differ from .*: of, parts;"):
        PartFiles(folder, {"of": "b"}, 8, ".x", (1, 3))
    (tmp_path / "else").mkdir()
    (tmp_path / "else/file").touch()
    with pytest.raises(ConfigError, match="contains other files"):
        PartFiles(tmp_path / "else", {}, 1, ".x", (1, 1))


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_ranges_contain_every_line_once(tmp_path, size):
    for name, lines in (("a", LINES[:60]), ("b", LINES[60:])):
        (tmp_path / f"{name}.txt").write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")
    paths = file_ranges.files_of_flag("input", tmp_path / "*.txt")
    units = file_ranges.split_files(paths, size)
    assert len(units) >= 2
    assert [line for unit in units for line in unit.lines()] == LINES
    with pytest.raises(ConfigError, match="--input=.*no file matches"):
        file_ranges.files_of_flag("input", f"{tmp_path}/a.txt,{tmp_path}/c*.txt")


def test_compressed_files_that_cannot_be_split_are_printed(tmp_path, capsys):
    """Not those that are smaller than a range, which one process reads in any case."""
    paths = [tmp_path / name for name in ("plain.txt", "small.gz", *(f"{k}.gz" for k in range(7)))]
    for path in paths:
        text = f"{path.name}\n".encode() * (1 if path.name == "small.gz" else 9_999)
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    units = file_ranges.split_files(paths, 100)
    assert [unit.path for unit in units if unit.path.suffix == ".gz"] == paths[1:]
    assert all(set(unit.lines()) == {unit.path.name} for unit in units)
    printed = capsys.readouterr().err
    assert f"a single process reads each: {', '.join(map(str, paths[2:7]))} and 2 more" in printed
    assert "plain.txt" not in printed and "small.gz" not in printed
    assert not file_ranges.split_files(paths, 1 << 20)[9:] and not capsys.readouterr().err


def test_an_unfinished_file_of_a_killed_process_does_not_stop_a_job(tmp_path):
    (tmp_path / f"job.json.1234{atomic.PART}").write_text("{")
    assert PartFiles(tmp_path, {"input": "a"}, 2, ".x", (1, 1)).remaining() == [0, 1]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(ConfigError, match="contains other files"):
        PartFiles(tmp_path / "other", {"input": "a"}, 2, ".x", (1, 1))
