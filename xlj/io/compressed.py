"""Reads and writes compressed data, in pieces of bounded size even for extreme compression."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Generator, Iterable, Iterator
from typing import Any, BinaryIO

import zstandard

ENDINGS = (".gz", ".bz2", ".xz", ".zst")
"""Endings of supported files; each may contain several members, streams or frames."""

PIECE_BYTES = 1 << 18

_ZSTD_BYTES = 1 << 10  # zstandard has no limit: a byte may expand to 32 KiB (a block of 4 bytes)
_XZ_MEMORY = 1 << 28  # a file states how much it needs; xz -9 needs 65 MiB

_Rest = Generator[bytes, None, bytes]


def decompress(raw: Iterable[bytes], ending: str, may_be_empty: bool = False) -> Iterator[bytes]:
    """Yields the decompressed content in order, in pieces of at most `PIECE_BYTES`.

    Args:
      raw: the compressed data, in pieces.
      ending: one of `ENDINGS`.
      may_be_empty: whether empty data, or only zeros, is allowed, as between members. As a whole
        file it is an error: the file was truncated to nothing, or a crash left it so.

    Raises:
      OSError: if the data is damaged, or needs more memory than any ordinary file.
      EOFError: if it ends too early.
    """
    parts: list[bytes] = []
    size = 0
    for part in _parts(raw, ending, may_be_empty):
        parts.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield from _cut(b"".join(parts))
            parts, size = [], 0
    yield from _cut(b"".join(parts))


def _cut(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


def _parts(raw: Iterable[bytes], ending: str, may_be_empty: bool) -> Iterator[bytes]:
    new, read = _FORMATS[ending]
    member: Any = None
    begun, has_zeros = may_be_empty, False
    for data in raw:
        while data:
            if member is None:
                has_zeros |= data.startswith(b"\0")
                data = data.lstrip(b"\0")  # padding between members
                if not data:
                    break
                if has_zeros and not begun:
                    raise OSError("it begins with zeros")
                member, begun = new(), True
            try:
                data = yield from read(member, data)
            except (zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
                raise OSError(str(error)) from None
            if member.eof:
                member = None
    if member is not None or not begun:
        raise EOFError("its compressed data ends too early")


def _gunzip(member: Any, data: bytes) -> _Rest:
    """Yields the decompressed data, and returns the data after the member."""
    while data and not member.eof:
        yield member.decompress(data, PIECE_BYTES)
        data = member.unconsumed_tail
    return member.unused_data


def _unpack(member: Any, data: bytes) -> _Rest:
    yield member.decompress(data, PIECE_BYTES)
    while not (member.eof or member.needs_input):
        yield member.decompress(b"", PIECE_BYTES)
    return member.unused_data


def _unzstd(member: Any, data: bytes) -> _Rest:
    for start in range(0, len(data), _ZSTD_BYTES):
        yield member.decompress(data[start : start + _ZSTD_BYTES])
        if member.eof:
            return member.unused_data + data[start + _ZSTD_BYTES :]
    return b""


_FORMATS = {
    ".gz": (lambda: zlib.decompressobj(wbits=31), _gunzip),
    ".bz2": (bz2.BZ2Decompressor, _unpack),
    ".xz": (lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY), _unpack),
    ".zst": (lambda: zstandard.ZstdDecompressor().decompressobj(), _unzstd),
}


def compressor(file: BinaryIO, ending: str) -> Any:
    """Returns a binary file that compresses its content into `file`, in the format of the ending.

    Equal content gives equal bytes. Closing it is required, and leaves `file` open.
    """
    return _WRITERS[ending](file)


_WRITERS: dict[str, Any] = {
    ".gz": lambda file: gzip.GzipFile("", "wb", fileobj=file, mtime=0),
    ".bz2": lambda file: bz2.BZ2File(file, "wb"),
    ".xz": lambda file: lzma.LZMAFile(file, "wb"),
    ".zst": lambda file: zstandard.ZstdCompressor().stream_writer(file, closefd=False),
}
