"""Text files, plain or compressed: their lines."""

from __future__ import annotations

import codecs
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from xlj.config import ConfigError

NOT_TEXT = (".bz2", ".zip", ".7z", ".lz4", ".tar", ".tgz", ".parquet", ".arrow", ".json", ".jsonl")
STDIN = Path("-")
"""Standard input, where a file is asked for."""
_CHUNK_BYTES = 1 << 18


def is_stream(path: Path) -> bool:
    """Whether it is standard input, a pipe or a device, which may be read only once."""
    return path == STDIN or (path.exists() and not path.is_file() and not path.is_dir())


def blocks(path: Path, seen: Callable[[bytes], Any] = len) -> Iterator[list[str | None]]:
    """The lines of a file in blocks, split at line feeds only; None is a line that is not UTF-8.

    Files that end in .gz, .xz or .zst are decompressed; standard input is not. A byte order mark
    is left out.

    Args:
      seen: called with the raw bytes of the file, piece by piece.

    Raises:
      ConfigError: if the file cannot be read or decompressed to its end.
    """
    unfinished: list[bytes] = []
    start = True
    for chunk in _decompressed(path, seen):
        head, feed, tail = chunk.rpartition(b"\n")
        if not feed:
            unfinished.append(chunk)
            continue
        block = b"".join([*unfinished, head])
        unfinished = [tail]
        yield _decode(block.removeprefix(codecs.BOM_UTF8) if start else block)
        start = False
    rest = b"".join(unfinished)
    if rest:
        yield _decode(rest.removeprefix(codecs.BOM_UTF8) if start else rest)


def lines(path: Path) -> Iterator[str]:
    """The lines of a file (or `STDIN`) in order, blank ones too.

    Raises:
      ConfigError: as `blocks` does, or if a line is not UTF-8; it names file and line.
    """
    number = 0
    for block in blocks(path):
        for line in block:
            number += 1
            if line is None:
                raise ConfigError(f"{path}:{number}: the line is not UTF-8")
            yield line


def _decode(block: bytes) -> list[str | None]:
    try:
        return list(block.decode().split("\n"))
    except UnicodeDecodeError:
        return [_decode_line(line) for line in block.split(b"\n")]


def _decode_line(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _decompressed(path: Path, seen: Callable[[bytes], Any]) -> Iterator[bytes]:
    try:
        with open(0, "rb", closefd=False) if path == STDIN else path.open("rb") as file:
            if os.fspath(path).endswith((".gz", ".xz", ".zst")):
                yield from _members(path, file, seen)
            else:
                while raw := file.read(_CHUNK_BYTES):
                    seen(raw)
                    yield raw
    except (OSError, EOFError, zlib.error, lzma.LZMAError, _zstd_error()) as error:
        raise ConfigError(f"{path}: cannot read it to the end ({error})") from error


def _members(path: Path, file: Any, seen: Callable[[bytes], Any]) -> Iterator[bytes]:
    """The content of all members (gzip), streams (xz) or frames (zst) of a file, in order."""
    member: Any = None
    while raw := file.read(_CHUNK_BYTES):
        seen(raw)
        while raw:
            if member is None:
                raw = raw.lstrip(b"\0")  # padding between members
                if not raw:
                    break
                member = _decompressor(path.suffix)
            yield member.decompress(raw)
            if not member.eof:
                break
            raw, member = member.unused_data, None
    if member is not None:
        raise EOFError("its compressed data ends too early")


def _decompressor(suffix: str) -> Any:
    if suffix == ".gz":
        return zlib.decompressobj(wbits=31)
    if suffix == ".xz":
        return lzma.LZMADecompressor()
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


def _zstd_error() -> type[Exception]:
    import zstandard

    return zstandard.ZstdError
