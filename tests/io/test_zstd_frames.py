"""Frames are found from any byte, and each line of a split file is read once."""

import random
import struct
from pathlib import Path

import pytest
import zstandard

from xlj.config import ConfigError
from xlj.io import files, zstd_frames
from xlj.io.malformed import too_long


def frame(content: bytes, **options) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(content)


def skippable(content: bytes) -> bytes:
    return struct.pack("<II", 0x184D2A5E, len(content)) + content


def write(path: Path, parts: list[bytes]) -> list[int]:
    """Writes frames; returns the start of each, and the end."""
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + len(part))
    path.write_bytes(b"".join(parts))
    return starts


def lines(path: Path, cuts: list[int]) -> list[list[str | None]]:
    return [
        [line for block in files.range_blocks(path, a, b) for line in block]
        for a, b in zip(cuts[:-1], cuts[1:], strict=True)
    ]


def noise(count: int) -> bytes:
    return random.Random(count).randbytes(count)


def test_the_first_frame_from_any_byte_is_found(tmp_path):
    path = tmp_path / "a.zst"
    options = {"write_checksum": True, "write_content_size": False}
    plain = frame(b"\n".join(b"%d" % i for i in range(99)))
    # An uncompressed block contains the magic number of a frame and a whole frame.
    marked = frame(noise(300) + zstandard.FRAME_HEADER + noise(300) + plain + noise(300))
    assert zstandard.FRAME_HEADER in marked[4:] and plain in marked
    large = frame(noise(600_000), **options)  # several blocks
    same = frame(b"x" * 400_000)  # blocks of one repeated byte
    parts = [plain, marked, skippable(b"1234"), large, same, frame(b""), plain]
    starts = write(path, parts)
    frame_starts = [start for start, part in zip(starts, parts, strict=False) if part[0] == 0x28]
    offsets = [
        1,
        17,
        starts[1] + 1,
        starts[3] - 1,
        starts[3] + 1,
        *frame_starts,
        starts[-1] - 1,
        starts[-1],
    ]
    offsets += list(range(5, starts[-1], 7919))
    for offset in offsets:
        expected = min((start for start in frame_starts if start >= offset), default=starts[-1])
        assert zstd_frames.first_from(path, offset) == expected
    assert zstd_frames.first_from(path, 0) == 0


@pytest.mark.parametrize("size", [1, 9, 60, 1000, 1 << 20])
def test_ranges_of_a_file_contain_every_line_once(tmp_path, size):
    """Lines cross the ends of frames, end with a frame, or fill several frames."""
    path = tmp_path / "a.zst"
    content = b"\xef\xbb\xbf" + b"".join(
        b"%d %s\n" % (i, b"y" * (i * i % 41)) if i % 7 else b"\n" for i in range(300)
    )
    content += b"z" * 500 + b"\nlast"
    ends = [0, 3, 10, 11, 200, 201, content.index(b"\n", 900) + 1, 1500, len(content) - 5]
    ends += [len(content) - 300, len(content) - 200, len(content) - 100, len(content)]
    ends = sorted({*ends, *(i + 1 for i, b in enumerate(content[2000:2400], 2000) if b == 10)})
    parts = [frame(content[a:b]) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    parts[4:4] = [skippable(b""), frame(b"")]
    total = write(path, parts)[-1]
    cuts = [*range(0, total, size), total]
    actual = lines(path, cuts)
    assert sum(actual, []) == [line for block in files.blocks(path) for line in block]
    assert sum(map(bool, actual)) > 1 or size > total
    for start, part in zip(cuts, actual, strict=False):
        if part:
            whole = content.decode("utf-8-sig").split("\n")
            assert whole[files.first_line(path, start) - 1] == part[0]


def test_only_files_of_small_frames_can_be_split(tmp_path):
    path = tmp_path / "a.zst"
    small, large = frame(noise(5000)), frame(noise(40_000))
    for parts, expected in (
        ([small] * 20, True),
        ([skippable(b"1234"), small] * 20, True),
        ([large], False),
        ([small, large, small], False),
        (
            [small, b"\0\0\0\0", *[small] * 20],
            False,
        ),  # padding is supported, but the file is not split
        ([small[:-1]] + [small] * 5, False),
        ([b"no zstd at all " * 2000], False),
    ):
        write(path, parts)
        assert files.can_be_split(path, 20_000) == expected
    path.with_suffix(".gz").touch()
    path.with_suffix(".txt").touch()
    assert files.can_be_split(path.with_suffix(".txt"), 9)
    assert not files.can_be_split(path.with_suffix(".gz"), 9)


def test_damage_is_reported_by_the_range_that_reads_it(tmp_path):
    path = tmp_path / "a.zst"
    parts = [frame(b"%d\n%s\n" % (i, noise(30_000).hex().encode())) for i in range(20)]
    starts = write(path, [*parts, frame(noise(3000).hex().encode())[:-40]])
    total = path.stat().st_size
    assert lines(path, [0, starts[5]])[0]
    with pytest.raises(ConfigError, match=r"a\.zst: cannot read this file"):
        lines(path, [starts[15], total])
    long = [frame(b"a\nb\n"), frame(b"x" * 600_000), frame(b"x" * 600_000 + b"\nc\n")]
    starts = write(path, [*long, frame(b"d\n")])
    for cuts in ([0, starts[1]], [0, starts[-1]]):
        assert lines(path, cuts)[0][:3] == ["a", "b", too_long(files.LINE_BYTES)]
    every = [0, *starts[1:], path.stat().st_size]
    assert sum(lines(path, every), []) == ["a", "b", too_long(files.LINE_BYTES), "c", "d"]
