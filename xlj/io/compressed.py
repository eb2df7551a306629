"""Reads and writes compressed data in pieces of bounded size, whatever the compression ratio is."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Generator, Iterable, Iterator
from typing import Any, BinaryIO

import zstandard

ENDINGS = (".gz", ".bz2", ".xz", ".zst")
"""Endings of supported files. A file may consist of several members, which the format may call
streams or frames."""

PIECE_BYTES = 1 << 18
"""The maximum size of a piece of decompressed content."""

_ZSTD_BYTES = 1 << 10
"""Compressed bytes per call: a byte may expand to 32 KiB, and zstandard cannot limit its output."""

_XZ_MEMORY = 1 << 28
"""The maximum memory that decompressing a .xz file may need, in bytes; xz -9 needs 65 MiB."""

_PiecesThenRest = Generator[bytes, None, bytes]
"""Yields decompressed pieces of a member, and returns the compressed data after the member."""


def decompress(raw: Iterable[bytes], ending: str) -> Iterator[bytes]:
    """Yields the decompressed content in order, in pieces of at most `PIECE_BYTES`.

    Args:
      raw: the compressed data, in pieces.
      ending: one of `ENDINGS`.

    Raises:
      OSError: if the data is damaged, or if a .xz file needs more than 256 MiB of memory.
      EOFError: if the data ends too early. A file without content is also an error: it was
        truncated, perhaps by a crash.
    """
    parts: list[bytes] = []
    size = 0
    for part in _decompress_members(raw, ending):
        parts.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield from _split(b"".join(parts))
            parts, size = [], 0
    yield from _split(b"".join(parts))


def _split(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


def _decompress_members(raw: Iterable[bytes], ending: str) -> Iterator[bytes]:
    """Yields the decompressed content of all members, in pieces."""
    new, read = _DECOMPRESSORS[ending]
    member: Any = None
    has_member = has_zeros = False
    for data in raw:
        while data:
            if member is None:
                has_zeros |= data.startswith(b"\0")
                data = data.lstrip(b"\0")  # padding between members
                if not data:
                    break
                if has_zeros and not has_member:
                    raise OSError("the file begins with zeros")
                member, has_member = new(), True
            try:
                data = yield from read(member, data)
            except (zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
                raise OSError(str(error)) from None
            if member.eof:
                member = None
    if member is not None or not has_member:
        raise EOFError("the compressed data ends too early")


def _gunzip(member: Any, data: bytes) -> _PiecesThenRest:
    while data and not member.eof:
        yield member.decompress(data, PIECE_BYTES)
        data = member.unconsumed_tail
    return member.unused_data


def _unpack(member: Any, data: bytes) -> _PiecesThenRest:
    yield member.decompress(data, PIECE_BYTES)
    while not (member.eof or member.needs_input):
        yield member.decompress(b"", PIECE_BYTES)
    return member.unused_data


def _unzstd(member: Any, data: bytes) -> _PiecesThenRest:
    for start in range(0, len(data), _ZSTD_BYTES):
        yield member.decompress(data[start : start + _ZSTD_BYTES])
        if member.eof:
            return member.unused_data + data[start + _ZSTD_BYTES :]
    return b""


_DECOMPRESSORS = {
    ".gz": (lambda: zlib.decompressobj(wbits=31), _gunzip),
    ".bz2": (bz2.BZ2Decompressor, _unpack),
    ".xz": (lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY), _unpack),
    ".zst": (lambda: zstandard.ZstdDecompressor().decompressobj(), _unzstd),
}


def compressor(file: BinaryIO, ending: str) -> Any:
    """Returns a writable binary file that compresses what is written to it into `file`.

    Equal content gives equal bytes. The caller must close the returned file; `file` stays open.

    Args:
      file: the file that receives the compressed data.
      ending: one of `ENDINGS`, which determines the format.
    """
    return _COMPRESSORS[ending](file)


_COMPRESSORS: dict[str, Any] = {
    ".gz": lambda file: gzip.GzipFile("", "wb", fileobj=file, mtime=0),
    ".bz2": lambda file: bz2.BZ2File(file, "wb"),
    ".xz": lambda file: lzma.LZMAFile(file, "wb"),
    ".zst": lambda file: zstandard.ZstdCompressor().stream_writer(file, closefd=False),
}
