"""Files are read completely, and split only at line feeds."""

import gzip
import lzma
import os
from pathlib import Path

import pytest
import zstandard

from xlj.config import ConfigError
from xlj.io import files, storage
from xlj.io.malformed import Line, too_long

COMPRESS = {
    ".txt": lambda raw: raw,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def lines(path: Path) -> list[Line]:
    return [line for block in files.blocks(path) for line in block]


@pytest.mark.parametrize("ending", COMPRESS)
def test_lines_are_the_same_with_every_compression(tmp_path, ending):
    expected = (
        ["first\u2028same line\x0bstill", "", "žluťoučký 🐎\x85kůň"] + ["x" * 99] * 20_000 + ["end"]
    )
    raw = "\n".join(expected).encode()
    path = tmp_path / f"a{ending}"
    cut = len(raw) // 3
    path.write_bytes(COMPRESS[ending](raw[:cut]) + COMPRESS[ending](raw[cut:]))  # two members
    assert lines(path) == expected
    path.write_bytes(COMPRESS[ending](b"\xef\xbb\xbf" + raw + b"\n"))  # with a byte order mark
    assert lines(path) == expected


def test_a_line_longer_than_a_chunk_is_read(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("é" * 400_000 + "\nb")
    assert lines(path) == ["é" * 400_000, "b"]


@pytest.mark.parametrize("before", [b"", b"a\n\xff\n", b"a\n" * 300_000])
@pytest.mark.parametrize("after", [b"", b"\n", b"\nb\nc"])
def test_the_length_of_a_line_is_limited_everywhere(tmp_path, before, after):
    path = tmp_path / "a.txt"
    path.write_bytes(before + b"x" * files.LINE_BYTES + after)
    assert "x" * files.LINE_BYTES in lines(path)
    path.write_bytes(before + b"x" * (files.LINE_BYTES + 1) + after)
    number = before.count(b"\n") + 1
    actual = lines(path)
    assert actual[number - 1] == too_long(files.LINE_BYTES)
    assert actual[number:] == ["", "b", "c"][len(after) and 1 : len(after)]
    if b"\xff" not in before:
        with pytest.raises(ConfigError, match=rf"a\.txt:{number}: the line has more than 1,048,5"):
            list(files.lines(path))


def test_blocks_of_aligned_files_are_equally_long(tmp_path):
    short, long = tmp_path / "short.gz", tmp_path / "long.txt"
    short.write_bytes(gzip.compress(b"".join(b"%d\n" % i for i in range(9999)) + b"last"))
    long.write_bytes(b"".join(b"%d %s\n" % (i, b"x" * 99) for i in range(10_000)))
    actual = list(files.aligned_blocks([short, long]))
    assert len(actual) > 3 and all(len(one) == len(other) for one, other in actual)
    one, other = (sum(side, []) for side in zip(*actual, strict=True))
    assert one == [str(i) for i in range(9999)] + ["last"]
    assert other == [f"{i} {'x' * 99}" for i in range(10_000)]
    with long.open("ab") as file:
        file.write(b"one more\n")
    with pytest.raises(
        ConfigError, match=r"short\.gz and \S*long\.txt have different numbers of lines"
    ):
        list(files.aligned_blocks([short, long]))


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "not compressed"])
def test_errors_of_broken_compression_name_the_file(tmp_path, ending, damage):
    raw = os.urandom(300_000).hex().encode()
    path = tmp_path / f"broken{ending}"
    path.write_bytes(COMPRESS[ending](raw)[:-50_000] if damage == "cut" else b"plain text\n" * 99)
    with pytest.raises(ConfigError, match=f"broken{ending}: cannot read this file"):
        lines(path)


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n"])
@pytest.mark.parametrize("size", [1, 3, 50, 4000, 1 << 18, 3 << 20])
def test_ranges_contain_every_line_once(tmp_path, ending, size):
    path = tmp_path / "a.txt"
    many = 40 if size < 50 else 3000
    content = [b"", b"\xff", b"long " * 1000, "žluť".encode(), b"x"] * (many // 5)
    if size > 1 << 19:
        content += [b"y" * files.LINE_BYTES, b"z"] * 3
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join(content) + ending)
    total = path.stat().st_size
    actual = []
    for start in range(0, total, size):
        for block in files.range_blocks(path, start, min(total, start + size)):
            actual += block
    assert actual == lines(path)


@pytest.mark.parametrize("more", [1, 5 << 20])
def test_a_line_that_is_too_long_is_one_line_in_a_range_too(tmp_path, more):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\n" * 300_000 + b"x" * (files.LINE_BYTES + more) + b"\nb\n")
    expected = [too_long(files.LINE_BYTES), "b"]
    for start in (0, 400_000):
        actual = [x for s in files.range_blocks(path, start, path.stat().st_size) for x in s]
        assert actual == ["a"] * (300_000 - start // 2) + expected
    assert [x for s in files.range_blocks(path, 600_001, path.stat().st_size) for x in s] == ["b"]


def test_files_that_match_a_pattern_are_found(tmp_path):
    for name in ("b.txt", "a.txt", "c/d.txt", "[x].txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    actual = [str(f.relative_to(tmp_path)) for f in storage.find_files(f"{tmp_path}/**/*.txt")]
    assert actual == ["[x].txt", "a.txt", "b.txt", "c/d.txt"]
    assert storage.find_files(f"{tmp_path}/[x].txt") == [tmp_path / "[x].txt"]  # an exact name
    assert storage.find_files(f"{tmp_path}/c") == storage.find_files(f"{tmp_path}/no") == []
