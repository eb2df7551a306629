"""Reads the lines of text files, plain or compressed."""

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from xlj.config import ConfigError
from xlj.io import compressed, formats, malformed, storage
from xlj.io.malformed import INVALID_UTF8, NUL, Line, Skipping, strip_mark, too_long
from xlj.io.storage import AnyPath

STDIN = Path("-")
"""The file name that means standard input."""
LINE_BYTES = 1 << 20
"""The maximum length of a line, in bytes; a paragraph is about a thousand times shorter."""


def is_stream(path: AnyPath) -> bool:
    """Whether a path is standard input, a pipe or a device, which can be read only once."""
    return path == STDIN or (path.exists() and not path.is_file() and not path.is_dir())


def pieces(path: AnyPath) -> Iterator[bytes]:
    """Yields the content of a file in pieces of at most `compressed.PIECE_BYTES`.

    A file whose name ends in one of `compressed.ENDINGS` is decompressed; standard input is never
    decompressed.

    Raises:
      ConfigError: if the file cannot be read or decompressed completely, or is not text.
    """
    try:
        with open(0, "rb", closefd=False) if path == STDIN else path.open("rb") as file:
            content = _read_pieces(file)
            if path.suffix in compressed.ENDINGS:
                content = compressed.decompress(content, path.suffix)
            first = next(content, b"")
            formats.refuse_binary(path, first[: formats.HEAD_BYTES])
            yield first
            yield from content
    except (OSError, EOFError) as error:
        raise _read_error(path, error) from error


def head(path: AnyPath) -> bytes:
    """Returns the first `formats.HEAD_BYTES` of the content of a file, after decompression.

    Returns no bytes for a stream, which can be read only once.

    Raises:
      ConfigError: if the file cannot be read or decompressed, or is not text.
    """
    return b"" if is_stream(path) else next(pieces(path), b"")[: formats.HEAD_BYTES]


def _read_pieces(file: BinaryIO, limit: int = sys.maxsize) -> Iterator[bytes]:
    """Yields the next bytes of a file, at most `limit` bytes in total, in pieces."""
    while piece := file.read(min(compressed.PIECE_BYTES, limit)):
        limit -= len(piece)
        yield piece


def can_be_split(path: AnyPath) -> bool:
    """Whether `range_blocks` can read a file in several ranges.

    The file must be uncompressed, and the server of a URL must support range requests.

    Raises:
      ConfigError: if the server of a URL does not answer.
    """
    try:
        return path.suffix not in compressed.ENDINGS and storage.can_seek(path)
    except OSError as error:
        raise _read_error(path, error) from error


def range_blocks(
    path: AnyPath, start: int, stop: int, longest: int = LINE_BYTES
) -> Iterator[list[Line]]:
    """Yields the lines that begin in the bytes [start, stop) of a file, in blocks like `blocks`.

    Consecutive ranges contain every line once. A compressed file is always read as a whole.

    Args:
      path: the file.
      start, stop: the range, in bytes of the file, before decompression.
      longest: the maximum length of a line in bytes.

    Raises:
      ConfigError: as `blocks`.
    """
    if path.suffix in compressed.ENDINGS:
        yield from blocks(path, longest)
        return
    try:
        with path.open("rb") as file:
            if start:
                file.seek(start - 1)
                _skip_line(file, stop)
            while (begin := file.tell()) < stop:
                block = file.read(min(compressed.PIECE_BYTES, stop - begin))
                if not block:
                    break
                if not begin:
                    formats.refuse_binary(path, block[: formats.HEAD_BYTES])
                    malformed.check_start(path, block)
                if not block.endswith(b"\n"):
                    head, feed, last = block.rpartition(b"\n")
                    last += file.readline(longest - len(last) + 1)
                    if len(last.removesuffix(b"\n")) > longest:
                        if feed:
                            yield _decode_lines(head)
                        yield [too_long(longest)]
                        if not last.endswith(b"\n"):
                            _skip_line(file, stop)
                        continue
                    block = head + feed + last
                yield _decode_lines(block.removesuffix(b"\n"))
    except OSError as error:
        raise _read_error(path, error) from error


def first_line(path: AnyPath, start: int) -> int:
    """Returns the one-based number of the first line of the range that begins at byte `start`."""
    if not start:
        return 1
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in _read_pieces(file, start - 1)) + 2


def _skip_line(file: BinaryIO, stop: int) -> None:
    """Skips the rest of a line and its line feed; may stop early at a position after `stop`."""
    while rest := file.readline(compressed.PIECE_BYTES):
        if rest.endswith(b"\n") or file.tell() > stop:
            return


def _read_error(path: AnyPath, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", "") or error
    hint = storage.what_is_there(path) if isinstance(error, FileNotFoundError) else ""
    return ConfigError(f"{path}: cannot read this file ({reason}){hint}")


def blocks(path: AnyPath, longest: int = LINE_BYTES) -> Iterator[list[Line]]:
    """Yields the lines of a file in blocks (lists of lines); decompresses the file like `pieces`.

    Only line feeds end a line. A `Malformed` replaces a line that is not UTF-8, contains NUL, or
    has more than `longest` bytes. Byte order marks at the starts of lines are removed (`Marked`).
    The lines of a block have fewer than `compressed.PIECE_BYTES + longest` bytes in total.

    Raises:
      ConfigError: if the file cannot be read or decompressed completely or is not text. Also if its
        first bytes show that the whole text is not UTF-8, or has only carriage returns as line ends
        (`malformed.check_start`).
    """
    unfinished: list[bytes] = []
    size, is_first = 0, True  # `size`: bytes of the unfinished line
    for piece in pieces(path):
        if is_first:
            malformed.check_start(path, piece)
            is_first = False
        end = piece.find(b"\n")
        before, size = size, size + (len(piece) if end < 0 else end)
        if size > longest:
            unfinished = []
            if before <= longest:
                yield [too_long(longest)]
            if end < 0:
                continue
            piece = piece[end + 1 :]
        head, feed, tail = piece.rpartition(b"\n")
        if feed:
            yield _decode_lines(b"".join([*unfinished, head]))
            unfinished = []
        if end >= 0:
            size = len(tail)
        unfinished.append(tail)
    if size <= longest and (rest := b"".join(unfinished)):
        yield _decode_lines(rest)


def aligned_blocks(paths: Sequence[AnyPath]) -> Iterator[tuple[list[Line], ...]]:
    """Yields the lines of files that are aligned by line number, in blocks of equal length.

    Raises:
      ConfigError: if a file cannot be read (see `blocks`), or if the numbers of lines differ.
    """
    sides = [blocks(path) for path in paths]
    heads = [next(side, []) for side in sides]
    while all(heads):
        length = min(map(len, heads))
        yield tuple(block[:length] for block in heads)
        heads = [block[length:] or next(side, []) for block, side in zip(heads, sides, strict=True)]
    if any(heads):
        raise ConfigError(
            f"{' and '.join(map(str, paths))} have different numbers of lines; line n of one file "
            "must correspond to line n of the other file"
        )


def lines(
    path: AnyPath, skipping: Skipping | None = None, longest: int = LINE_BYTES
) -> Iterator[str]:
    """Yields the lines of a file (or of `STDIN`) in order, including blank lines.

    Args:
      skipping: the policy for malformed lines; None raises an error.
      longest: the maximum length of a line in bytes.

    Raises:
      ConfigError: if the file cannot be read (see `blocks`), or on a malformed line that the policy
        does not skip; the message names the file and the line.
    """
    policy = skipping or Skipping()
    yield from policy.lines(itertools.chain.from_iterable(blocks(path, longest)), f"{path}:")
    if not skipping:
        policy.report()


def _decode_lines(block: bytes) -> list[Line]:
    """Decodes a block of lines, and removes byte order marks at the starts of lines."""
    text, result = decode(block), list[Line]()
    if isinstance(text, str):
        result += text.split("\n")
        if malformed.MARK not in text:
            return result
    else:
        result += map(decode, block.split(b"\n"))
    return [strip_mark(line) if isinstance(line, str) else line for line in result]


def decode(line: bytes) -> Line:
    """Decodes a line; returns a `Malformed` if the bytes are not UTF-8 or contain NUL."""
    try:
        return NUL if b"\0" in line else line.decode()
    except UnicodeDecodeError:
        return INVALID_UTF8
