"""Frames of a .zst file: where they begin is known without decompressing, so a file of many is cut.

A frame says only how long each of its blocks is (RFC 8878, 3.1.1), so its end is found by going
from block to block, at most 128 KiB each."""

import os
from typing import BinaryIO

import zstandard

from xlj.io.storage import AnyPath

_FRAME = zstandard.FRAME_HEADER
_SKIPPABLE = b"\x2a\x4d\x18"  # behind a byte from 0x50 to 0x5f
_HEADER_BYTES, _BLOCK_BYTES, _READ_BYTES = 18, 1 << 17, 1 << 18
_RLE, _RESERVED = 1, 3


def are_small(path: AnyPath, size: int) -> bool:
    """Whether the frames in the first `size` bytes of a file, which is longer, have no more each.

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
    """Where the first frame begins that does so at or behind an offset; the file's end if none
    does, and 0 for 0. It is a function of the file alone; what seems to be a frame counts as one
    only where another follows it, or nothing.

    Raises:
      OSError: if the file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        while 0 < offset < size:
            file.seek(offset)
            found = file.read(_READ_BYTES)
            place = found.find(_FRAME)
            if place < 0:
                offset += max(1, len(found) - len(_FRAME) + 1)
                continue
            offset += place
            end = _end(file, offset, size)
            if end is not None and (end == size or _is_frame(_at(file, end, 4))):
                return offset
            offset += 1
        return min(offset, size)


def _end(file: BinaryIO, start: int, most: int) -> int | None:
    """Where the frame ends that begins at `start`; None if there is none, or it ends beyond
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
        block = int.from_bytes(found := _at(file, place, 3), "little")
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        if len(found) < 3 or kind == _RESERVED or size > _BLOCK_BYTES or place > most:
            return None
        place += 3 + (1 if kind == _RLE else size)
    return place + checksum if place + checksum <= most else None


def _is_frame(header: bytes) -> bool:
    return header[:4] == _FRAME or (header[1:4] == _SKIPPABLE and 0x50 <= header[0] < 0x60)


def _at(file: BinaryIO, offset: int, count: int) -> bytes:
    file.seek(offset)
    return file.read(count)
