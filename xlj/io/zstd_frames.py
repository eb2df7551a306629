"""Finds frames of a .zst file without decompressing it, so that large files can be split.

A frame does not contain its own length, only the length of each of its blocks (RFC 8878, 3.1.1).
This module therefore finds the end of a frame by adding up the lengths of the blocks. A block has
at most 128 KiB."""

import os
from typing import BinaryIO

import zstandard

from xlj.io.storage import AnyPath

_FRAME_MAGIC = zstandard.FRAME_HEADER
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"  # comes after a byte from 0x50 to 0x5f
_HEADER_BYTES, _BLOCK_BYTES, _READ_BYTES = 18, 1 << 17, 1 << 18
_RLE_BLOCK, _RESERVED_BLOCK = 1, 3


def are_small(path: AnyPath, size: int) -> bool:
    """Whether each frame that begins in the first `size` bytes of a file has at most `size` bytes.

    Args:
      path: the file, which must have more than `size` bytes.
      size: a number of bytes.

    Raises:
      OSError: if the file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        offset = 0
        while offset < size:
            end = _find_frame_end(file, offset, offset + size)
            if end is None:
                return False
            offset = end
    return True


def first_from(path: AnyPath, offset: int) -> int:
    """Returns the start of the first frame at or after an offset.

    Returns the end of the file if no frame begins at or after the offset, and 0 for offset 0. Bytes
    that look like a frame count as a frame only if another frame or the end of the file follows.
    The result depends only on the offset and the content of the file.

    Raises:
      OSError: if the file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        while 0 < offset < size:
            file.seek(offset)
            content = file.read(_READ_BYTES)
            index = content.find(_FRAME_MAGIC)
            if index < 0:
                offset += max(1, len(content) - len(_FRAME_MAGIC) + 1)
                continue
            offset += index
            end = _find_frame_end(file, offset, size)
            if end is not None and (end == size or _is_frame(_read_at(file, end, 4))):
                return offset
            offset += 1
        return min(offset, size)


def _find_frame_end(file: BinaryIO, start: int, limit: int) -> int | None:
    """Returns the end of the frame that begins at `start`.

    Returns None if no frame begins at `start`, or if the frame ends after `limit`.
    """
    header = _read_at(file, start, _HEADER_BYTES)
    if not _is_frame(header):
        return None
    if header[1:4] == _SKIPPABLE_MAGIC:
        end = start + 8 + int.from_bytes(header[4:8], "little")
        return end if end <= limit else None
    try:
        position = start + zstandard.frame_header_size(header)
        checksum = 4 if zstandard.get_frame_parameters(header).has_checksum else 0
    except zstandard.ZstdError:
        return None
    last = False
    while not last:
        block = int.from_bytes(header := _read_at(file, position, 3), "little")
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        if len(header) < 3 or kind == _RESERVED_BLOCK or size > _BLOCK_BYTES or position > limit:
            return None
        position += 3 + (1 if kind == _RLE_BLOCK else size)
    return position + checksum if position + checksum <= limit else None


def _is_frame(header: bytes) -> bool:
    is_skippable = header[1:4] == _SKIPPABLE_MAGIC and 0x50 <= header[0] < 0x60
    return is_skippable or header[:4] == _FRAME_MAGIC


def _read_at(file: BinaryIO, offset: int, count: int) -> bytes:
    file.seek(offset)
    return file.read(count)
