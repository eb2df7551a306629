"""Text files, plain or compressed: their lines."""

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from xlj.config import ConfigError
from xlj.io import compressed, formats, malformed, storage, zstd_frames
from xlj.io.malformed import INVALID_UTF8, NUL, Line, Skipping, too_long, unmarked
from xlj.io.storage import AnyPath

STDIN = Path("-")
"""Standard input, where a file is asked for."""
LINE_BYTES = 1 << 20
"""The longest line that is read; of a sentence or a paragraph it is a thousand times too much."""
_FRAMED = ".zst"


def is_stream(path: AnyPath) -> bool:
    """Whether it is standard input, a pipe or a device, which may be read only once."""
    return path == STDIN or (path.exists() and not path.is_file() and not path.is_dir())


def pieces(path: AnyPath) -> Iterator[bytes]:
    """The content of a file in pieces of at most `compressed.PIECE_BYTES`.

    Files that end in one of `compressed.ENDINGS` are decompressed; standard input is not.

    Raises:
      ConfigError: if the file cannot be read or decompressed to its end, or is no text.
    """
    try:
        with open(0, "rb", closefd=False) if path == STDIN else path.open("rb") as file:
            found = _raw(file)
            if path.suffix in compressed.ENDINGS:
                found = compressed.decompressed(found, path.suffix)
            first = next(found, b"")
            formats.refuse_binary(path, first[: formats.HEAD_BYTES])
            yield first
            yield from found
    except (OSError, EOFError) as error:
        raise _unreadable(path, error) from error


def head(path: AnyPath) -> bytes:
    """The first `formats.HEAD_BYTES` of a file's content, or what there is; none of a stream, which
    can be read only once. It raises as `pieces`."""
    return b"" if is_stream(path) else next(pieces(path), b"")[: formats.HEAD_BYTES]


def _raw(file: BinaryIO, left: int = sys.maxsize) -> Iterator[bytes]:
    """What comes next in a file, at most so many bytes, piece by piece."""
    while found := file.read(min(compressed.PIECE_BYTES, left)):
        left -= len(found)
        yield found


def can_be_cut(path: AnyPath, size: int) -> bool:
    """Whether `stretch` reads parts of about `size` bytes of a file that is longer: it is plain, or
    a .zst file of many frames, as far as the first ones tell, and its server, if it is a URL, knows
    ranges; a `ConfigError` if it cannot be read."""
    try:
        if not storage.can_seek(path):
            return False
        if path.suffix == _FRAMED:
            return zstd_frames.are_small(path, size)
    except OSError as error:
        raise _unreadable(path, error) from error
    return path.suffix not in compressed.ENDINGS


def stretch(
    path: AnyPath, start: int, stop: int, longest: int = LINE_BYTES
) -> Iterator[list[Line]]:
    """The lines of a file that begin in its bytes [start, stop), in blocks as those of `blocks`,
    which it raises like. Stretches that follow each other have every line once.

    Of a .zst file it is those that begin in the frames that begin there, but for one that begins
    with the first of them: whether it does is known only of what stands before, so it belongs
    there. Other compressed files have one stretch.
    """
    if path.suffix == _FRAMED:
        yield from _blocks(_frames(path, start, stop), path, start, longest)
        return
    if path.suffix in compressed.ENDINGS:
        yield from blocks(path, longest)
        return
    try:
        with path.open("rb") as file:
            if start:
                file.seek(start - 1)
                _pass_line(file, stop)
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
                            yield _decode(head)
                        yield [too_long(longest)]
                        if not last.endswith(b"\n"):
                            _pass_line(file, stop)
                        continue
                    block = head + feed + last
                yield _decode(block.removesuffix(b"\n"))
    except OSError as error:
        raise _unreadable(path, error) from error


def _frames(path: AnyPath, start: int, stop: int) -> Iterator[bytes]:
    """The content of a stretch of a .zst file, in pieces."""
    try:
        begin, end = (zstd_frames.first_from(path, offset) for offset in (start, stop))
        found = _decompressed(path, begin, end)
        if start:
            for piece in found:
                _, feed, rest = piece.partition(b"\n")
                if feed:
                    yield rest
                    break
            else:
                return
        yield from found
        for piece in _decompressed(path, end):
            line, feed, _ = piece.partition(b"\n")
            yield line + feed
            if feed:
                return
    except (OSError, EOFError) as error:
        raise _unreadable(path, error) from error


def _decompressed(path: AnyPath, begin: int, end: int = sys.maxsize) -> Iterator[bytes]:
    """The content of frames, piece by piece."""
    with path.open("rb") as file:
        file.seek(begin)
        raw = _raw(file, end - begin)
        yield from compressed.decompressed(raw, path.suffix, may_be_empty=begin > 0)


def first_line(path: AnyPath, start: int) -> int:
    """The number, from 1, of the first line of the stretch of a file from `start` on."""
    if not start:
        return 1
    if path.suffix == _FRAMED:
        found = _decompressed(path, 0, zstd_frames.first_from(path, start))
        return sum(piece.count(b"\n") for piece in found) + 2
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in _raw(file, start - 1)) + 2


def _pass_line(file: BinaryIO, stop: int) -> None:
    """Passes over what is left of a line, with its line feed, however much it is; it may end
    anywhere behind `stop`."""
    while rest := file.readline(compressed.PIECE_BYTES):
        if rest.endswith(b"\n") or file.tell() > stop:
            return


def _unreadable(path: AnyPath, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", "") or error
    return ConfigError(f"{path}: cannot read it to the end ({reason})")


def blocks(path: AnyPath, longest: int = LINE_BYTES) -> Iterator[list[Line]]:
    """The lines of a file (see `pieces`) in blocks, split at line feeds only; a line that is not
    UTF-8, holds NUL, or has more than `longest` bytes is a `Malformed`. Byte order marks at the
    starts of lines are left out (`Marked`).

    A block is less than `compressed.PIECE_BYTES` and `longest` together.

    Raises:
      ConfigError: as `pieces` and `malformed.check_start` do.
    """
    yield from _blocks(pieces(path), path, 0, longest)


def _blocks(
    found: Iterator[bytes], path: AnyPath, start: int, longest: int
) -> Iterator[list[Line]]:
    """The lines of the content of a stretch, which comes in pieces."""
    unfinished: list[bytes] = []
    size, is_first = 0, not start  # bytes of the unfinished line
    for piece in found:
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
            yield _decode(b"".join([*unfinished, head]))
            unfinished = []
        if end >= 0:
            size = len(tail)
        unfinished.append(tail)
    if size <= longest and (rest := b"".join(unfinished)):
        yield _decode(rest)


def aligned_blocks(paths: Sequence[AnyPath]) -> Iterator[tuple[list[Line], ...]]:
    """The lines of files of which line n belongs to line n, in blocks of equal length of each; it
    raises as `blocks`, and a `ConfigError` if they have not as many lines."""
    sides = [blocks(path) for path in paths]
    held = [next(side, []) for side in sides]
    while all(held):
        length = min(map(len, held))
        yield tuple(block[:length] for block in held)
        held = [block[length:] or next(side, []) for block, side in zip(held, sides, strict=True)]
    if any(held):
        raise ConfigError(f"{' and '.join(map(str, paths))} have not as many lines")


def lines(
    path: AnyPath, skipping: Skipping | None = None, longest: int = LINE_BYTES
) -> Iterator[str]:
    """The lines of a file (or `STDIN`) in order, blank ones too; it raises as `blocks`, and a
    `ConfigError` that names file and line if one is malformed, unless `skipping` says otherwise."""
    passed = skipping or Skipping()
    yield from passed.lines(itertools.chain.from_iterable(blocks(path, longest)), f"{path}:")
    if not skipping:
        passed.report()


def _decode(block: bytes) -> list[Line]:
    text, found = decoded(block), list[Line]()
    if isinstance(text, str):
        found += text.split("\n")
        if malformed.MARK not in text:
            return found
    else:
        found += map(decoded, block.split(b"\n"))
    return [unmarked(line) if isinstance(line, str) else line for line in found]


def decoded(line: bytes) -> Line:
    """The text of bytes, or what stands for it if they are not UTF-8, or hold NUL."""
    try:
        return NUL if b"\0" in line else line.decode()
    except UnicodeDecodeError:
        return INVALID_UTF8
