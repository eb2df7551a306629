"""Finds frames of a .zst file without decompressing it, so that large files can be split.

A frame contains only the length of each of its blocks (RFC 8878, 3.1.1), so its end is found by
following the blocks, of at most 128 KiB each."""

import os
from typing import BinaryIO

import zstandard

from xlj.io.storage import AnyPath

_FRAME = zstandard.FRAME_HEADER
_SKIPPABLE = b"\x2a\x4d\x18"  # after a byte from 0x50 to 0x5f
_HEADER_BYTES, _BLOCK_BYTES, _READ_BYTES = 18, 1 << 17, 1 << 18
_RLE, _RESERVED = 1, 3


def are_small(path: AnyPath, size: int) -> bool:
    """Whether the frames in the first `size` bytes of a longer file have at most `size` bytes each.

    Raises:
      OSError: if it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        offset = 0
        while offset < size:
            end = _end(file, offset, offset + size)
            if end is None:
                return False
            offset = end
    return True


def first_from(path: AnyPath, offset: int) -> int:
    """Returns the start of the first frame at or after an offset.

    Returns the file's end if there is none, and 0 for offset 0. The result depends only on the
    file. Bytes that look like a frame count only if another frame or the end of the file follows.

    Raises:
      OSError: if the file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        while 0 < offset < size:
            file.seek(offset)
            content = file.read(_READ_BYTES)
            place = content.find(_FRAME)
            if place < 0:
                offset += max(1, len(content) - len(_FRAME) + 1)
                continue
            offset += place
            end = _end(file, offset, size)
            if end is not None and (end == size or _is_frame(_at(file, end, 4))):
                return offset
            offset += 1
        return min(offset, size)


def _end(file: BinaryIO, start: int, most: int) -> int | None:
    """Returns the end of the frame that begins at `start`; None if there is none, or it ends after
    `most`."""
    header = _at(file, start, _HEADER_BYTES)
    if not _is_frame(header):
        return None
    if header[1:4] == _SKIPPABLE:
        end = start + 8 + int.from_bytes(header[4:8], "little")
        return end if end <= most else None
    try:
        place = start + zstandard.frame_header_size(header)
        checksum = 4 if zstandard.get_frame_parameters(header).has_checksum else 0
    except zstandard.ZstdError:
        return None
    last = False
    while not last:
        block = int.from_bytes(header := _at(file, place, 3), "little")
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        if len(header) < 3 or kind == _RESERVED or size > _BLOCK_BYTES or place > most:
            return None
        place += 3 + (1 if kind == _RLE else size)
    return place + checksum if place + checksum <= most else None


def _is_frame(header: bytes) -> bool:
    return header[:4] == _FRAME or (header[1:4] == _SKIPPABLE and 0x50 <= header[0] < 0x60)


def _at(file: BinaryIO, offset: int, count: int) -> bytes:
    file.seek(offset)
    return file.read(count)
