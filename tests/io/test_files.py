"""Files are read whole, and split at line feeds only."""

import gzip
import lzma
import os
from pathlib import Path

import pytest
import zstandard

from xlj.config import ConfigError
from xlj.io import files

COMPRESS = {
    ".txt": lambda raw: raw,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def lines(path: Path) -> list[str | None]:
    return [line for block in files.blocks(path) for line in block]


@pytest.mark.parametrize("ending", COMPRESS)
def test_lines_come_back_through_every_compression(tmp_path, ending):
    wanted = (
        ["first\u2028same line\x0bstill", "", "žluťoučký 🐎\x85kůň"] + ["x" * 99] * 20_000 + ["end"]
    )
    raw = "\n".join(wanted).encode()
    path = tmp_path / f"a{ending}"
    half = len(raw) // 3
    path.write_bytes(COMPRESS[ending](raw[:half]) + COMPRESS[ending](raw[half:]))  # two members
    assert lines(path) == wanted
    path.write_bytes(COMPRESS[ending](b"\xef\xbb\xbf" + raw + b"\n"))  # a mark and a last line feed
    assert lines(path) == wanted


def test_a_line_longer_than_a_chunk(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("é" * 400_000 + "\nb")
    assert lines(path) == ["é" * 400_000, "b"]


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "not compressed"])
def test_broken_compression_names_the_file(tmp_path, ending, damage):
    raw = os.urandom(300_000).hex().encode()
    path = tmp_path / f"broken{ending}"
    path.write_bytes(COMPRESS[ending](raw)[:-50_000] if damage == "cut" else b"plain text\n" * 99)
    with pytest.raises(ConfigError, match=f"broken{ending}: cannot read it to the end"):
        lines(path)
