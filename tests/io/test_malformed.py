"""Content that is not UTF-8 is an error or a malformed line; other unusual text is read."""

import gzip
import json

import pytest

from xlj.config import ConfigError
from xlj.io import file_ranges, files, json_file
from xlj.io.malformed import INVALID_UTF8, NUL, Malformed, Skipping, encoding_of

LINES = "The cat number 5 sleeps.\nIt is late, and 7 dogs bark.\n" * 40
CHINESE = "一只猫在睡觉。\n我看见五只鸟。\n" * 40


@pytest.mark.parametrize("text", [LINES, CHINESE, "cat", "a\r\nb\r\n"])
@pytest.mark.parametrize("name", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
def test_other_encodings_are_named(tmp_path, text, name):
    mark = "\ufeff".encode(name)
    assert encoding_of(mark + text.encode(name)) == f"{name} by its byte order mark"
    assert encoding_of(text.encode(name)) == f"{name} by its bytes"
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(mark + text.encode(name)))
    with pytest.raises(ConfigError, match=rf"a\.txt\.gz: the text is {name} by .*iconv -f {name} "):
        list(files.lines(path))
    with pytest.raises(ConfigError, match=f"the text is {name}"):
        list(files.lines(path, Skipping("skip")))  # also if malformed lines are skipped


@pytest.mark.parametrize(
    "content",
    [LINES.encode(), CHINESE.encode(), b"", b"\0", b"a\0b c\nd e f\n" + LINES.encode(), b"\xff\n"],
)
def test_utf8_is_not_mistaken_for_another_encoding(content):
    assert encoding_of(content) == ""


def test_json_in_another_encoding_is_named(tmp_path):
    (tmp_path / "a.json").write_bytes(json.dumps({"a": "long enough"}).encode("utf-16-le"))
    with pytest.raises(ConfigError, match="a.json: the text is UTF-16LE by its bytes"):
        json_file.read(tmp_path / "a.json")


def test_lines_with_nul_or_invalid_utf8_are_malformed(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\nnul\0here\n\xe9t\xe9\nfour\n")
    assert [x for b in files.blocks(path) for x in b] == ["one", NUL, INVALID_UTF8, "four"]
    with pytest.raises(ConfigError, match=r"a\.txt:2: the line contains NUL, so it is not text"):
        list(files.lines(path))


@pytest.mark.parametrize("end", [b"", b"\r", b"\n"])
def test_a_file_with_only_carriage_returns_as_line_ends_is_refused(tmp_path, end):
    path = tmp_path / "a.tsv"
    path.write_bytes(LINES.encode().replace(b"\n", b"\r").rstrip(b"\r") + end)
    with pytest.raises(ConfigError, match=r"a\.tsv: its lines end in carriage returns only"):
        list(files.lines(path))
    with pytest.raises(ConfigError, match="carriage returns only"):
        list(files.range_blocks(path, 0, 2000))


@pytest.mark.parametrize(
    "content",
    [b"a\r\nb\r\n", b"a\r\nb\r", b"a stray\rreturn\nand a line\n", b"\r\n", b"a\r", b"a\rb\n"],
)
def test_other_carriage_returns_are_read(tmp_path, content):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    assert "\n".join(files.lines(path)) == content.decode().removesuffix("\n")


def test_a_byte_order_mark_at_the_start_of_any_line_is_removed(tmp_path, capsys):
    path, mark = tmp_path / "a.txt", "\ufeff"
    path.write_text(f"{mark}one\ntwo {mark}inside\n{mark}three\n{mark}{mark}four\nfive{mark}\n")
    assert list(files.lines(path)) == ["one", f"two {mark}inside", "three", "four", f"five{mark}"]
    reason = "byte order mark at the start of a line (the rest of the line is kept)"
    output = f"skipped: {reason}: 2 (first: a.txt:3)\n"
    assert capsys.readouterr().err.replace(f"{tmp_path}/", "") == output
    path.write_text(f"{mark}one\ntwo\n")
    assert list(files.lines(path)) == ["one", "two"] and not capsys.readouterr().err


def test_skipped_lines_are_replaced_by_empty_lines_and_counted_once(tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\xff\nthree\n\n\xfe\n" + b"x" * 2_000_000 + b"\nlast")
    skipping = Skipping("skip", "--malformed")
    for _ in range(2):
        assert list(files.lines(path, skipping)) == ["one", "", "three", "", "", "", "last"]
        assert skipping.rows == [1, 4, 5]
    skipping.report()
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"skipped: invalid UTF-8: 2 (first: {path}:2)"
    assert second == f"skipped: line too long: 1 (first: {path}:6)"
    with pytest.raises(ConfigError, match=":2: the line is not UTF-8; fix it, or set --bad"):
        list(files.lines(path, Skipping("error", "--bad")))
    with pytest.raises(ConfigError, match="^here has more columns$"):
        Skipping().skip(Malformed("columns", " has more columns"), "here")


def test_ranges_skip_malformed_lines_too(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one two three\n" * 3 + b"\xff\nend\n")
    actual, skipping = [], Skipping("skip")
    for unit in file_ranges.split_files([path], 20):
        actual += unit.lines(skipping)
    assert actual == ["one two three"] * 3 + ["", "end"]
    with pytest.raises(
        ConfigError, match=r"a\.txt, from byte \d+ on, line \d: the line is not UTF"
    ):
        [list(unit.lines()) for unit in file_ranges.split_files([path], 20)]
