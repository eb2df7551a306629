"""Compressed files are read in bounded memory, even if a small file expands to a large one."""

import bz2
import gzip
import lzma
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import zstandard

from xlj.config import ConfigError
from xlj.io import compressed, files

ROOT = Path(__file__).parents[2]
MIB = 1 << 20

NEW = {
    ".gz": lambda: zlib.compressobj(1, wbits=31),
    ".bz2": lambda: bz2.BZ2Compressor(1),
    ".xz": lambda: lzma.LZMACompressor(preset=0),
    ".zst": lambda: zstandard.ZstdCompressor().compressobj(),
}

READ = """
import resource, sys
from pathlib import Path
from xlj.config import ConfigError
from xlj.io import json_file
from xlj.io import files

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

path = Path(sys.argv[1])
tiny = path.with_name("tiny" + path.suffix)
list(files.lines(tiny))
before, result = peak(), 0
try:
    for line in files.lines(path):
        result += 1
except ConfigError as error:
    result = error
print(peak() - before, result)
"""


def write(path: Path, content: bytes, times: int = 1) -> None:
    """Writes one member (stream, frame) of repeated content."""
    compressor = NEW[path.suffix]()
    with path.open("wb") as file:
        for _ in range(times):
            file.write(compressor.compress(content))
        file.write(compressor.flush())


def read(folder: Path, path: Path) -> tuple[int, str]:
    """Returns the MiB that reading a file needs, and the number of its lines or the error."""
    write(folder / f"tiny{path.suffix}", b"a\nb")
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    memory, _, result = done.stdout.strip().partition(" ")
    return int(memory), result


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(ending, marks=[pytest.mark.slow] if ending == ".bz2" else [])
        for ending in compressed.ENDINGS
    ],
)
def test_many_lines_of_a_small_file_take_little_memory(tmp_path, ending):
    path = tmp_path / f"a{ending}"
    write(path, b"An ordinary line of an ordinary text, which is a sentence.\n" * 17_772, 96)
    assert path.stat().st_size < MIB
    memory, result = read(tmp_path, path)
    assert result == str(17_772 * 96) and memory < 48


@pytest.mark.parametrize("ending", compressed.ENDINGS)
def test_one_endless_line_is_refused_in_little_memory(tmp_path, ending):
    path = tmp_path / f"a{ending}"
    write(path, b"one\ntwo\n")
    with path.open("ab") as file:
        write(tmp_path / f"b{ending}", bytes(MIB), 192)
        file.write((tmp_path / f"b{ending}").read_bytes())
    memory, result = read(tmp_path, path)
    assert result.startswith(f"{path}:3: the line has more than 1,048,576 bytes") and memory < 48


@pytest.mark.parametrize("ending", compressed.ENDINGS)
def test_blocks_and_pieces_are_neither_large_nor_small(tmp_path, ending):
    path = tmp_path / f"a{ending}"
    write(path, b"\n" * MIB, 4)
    sizes = [len(block) for block in files.blocks(path)]
    assert sum(sizes) == 4 * MIB and max(sizes) <= compressed.PIECE_BYTES + 1
    content = b"".join(b"%d\n" % i for i in range(400_000))
    write(path, content)
    pieces = list(files.pieces(path))
    assert b"".join(pieces) == content
    assert max(map(len, pieces)) <= compressed.PIECE_BYTES
    assert len(pieces) <= 2 * len(content) / compressed.PIECE_BYTES + 1  # small pieces are joined


@pytest.mark.parametrize("ending", compressed.ENDINGS)
def test_a_member_may_end_anywhere(tmp_path, ending):
    """Also at the end of a piece of the raw file, or of a piece for the zst library."""
    path = tmp_path / f"a{ending}"
    one, expected = tmp_path / f"one{ending}", []
    with path.open("wb") as file:
        for i in range(60):
            lines = [f"{i} {'x' * (i * 37 % 101)} {j * j}" for j in range(i * i)]
            write(one, "".join(f"{line}\n" for line in lines).encode())
            file.write(one.read_bytes() + b"\0" * (4 * (i % 3)))
            expected += lines
    assert list(files.lines(path)) == expected


def test_xz_files_that_need_much_memory_are_refused(tmp_path):
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 512 * MIB}]
    path = tmp_path / "a.xz"
    path.write_bytes(lzma.compress(b"a\n", filters=filters))
    with pytest.raises(ConfigError, match="a.xz: cannot read this file .*[Mm]emory"):
        list(files.lines(path))


def test_damage_in_the_middle_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "a.gz"
    raw = bytearray(gzip.compress(b"".join(b"%d\n" % (i * i) for i in range(300_000))))
    raw[len(raw) // 2] ^= 255
    path.write_bytes(raw)
    with pytest.raises(ConfigError, match=r"a\.gz: cannot read this file"):
        list(files.lines(path))


@pytest.mark.parametrize("ending", compressed.ENDINGS)
def test_zeros_at_the_start_are_damage(tmp_path, ending):
    """The bytes after them may look like another format: an empty `.lzma`, for xz."""
    path = tmp_path / f"a.txt{ending}"
    write(path, b"one\n")
    for content in (bytes(43) + b"\x1c" + bytes(20), bytes(1 << 18) + path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="the file begins with zeros"):
            list(files.lines(path))
    if ending == ".xz":
        path.write_bytes(lzma.compress(b"one\n", lzma.FORMAT_ALONE))
        with pytest.raises(ConfigError, match=r"a\.txt\.xz: cannot read this file"):
            list(files.lines(path))


@pytest.mark.parametrize("content", [b"", bytes(600)], ids=["empty", "zeros"])
@pytest.mark.parametrize("ending", compressed.ENDINGS)
def test_a_file_that_a_crash_left_empty_is_not_an_empty_text(tmp_path, ending, content):
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="ends too early"):
        list(files.lines(path))
    with pytest.raises(ConfigError, match="ends too early"):
        list(files.range_blocks(path, 0, len(content)))
