"""Text files, plain or compressed: their lines."""

import codecs
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from xlj.config import ConfigError
from xlj.io import compressed, storage, zstd_frames
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

    Files that end in .gz, .xz or .zst are decompressed; standard input is not.

    Raises:
      ConfigError: if the file cannot be read or decompressed to its end.
    """

    try:
        with open(0, "rb", closefd=False) if path == STDIN else path.open("rb") as file:
            if path.suffix in compressed.ENDINGS:
                yield from compressed.decompressed(_raw(file), path.suffix)
            else:
                yield from _raw(file)
    except (OSError, EOFError) as error:
        raise _unreadable(path, error) from error


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
) -> Iterator[list[str | None]]:
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
                _rest_of_line(file, path, longest, longest)
            while (begin := file.tell()) < stop:
                block = file.read(min(compressed.PIECE_BYTES, stop - begin))
                if not block:
                    break
                if not block.endswith(b"\n"):
                    last = len(block) - block.rfind(b"\n") - 1
                    block += _rest_of_line(file, path, longest - last, longest)
                yield _decode(
                    (block if begin else block.removeprefix(codecs.BOM_UTF8)).removesuffix(b"\n")
                )
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
    return line_number(path, start - 1) + 1


def line_number(path: AnyPath, offset: int) -> int:
    """The number, from 1, of the line that holds a byte of a plain file."""
    count, left = 1, offset
    with path.open("rb") as file:
        while left and (piece := file.read(min(compressed.PIECE_BYTES, left))):
            count += piece.count(b"\n")
            left -= len(piece)
    return count


def _rest_of_line(file: BinaryIO, path: AnyPath, room: int, longest: int) -> bytes:
    """What follows in a file up to a line feed, with it; a `ConfigError` if that is more than
    `room`, so that the line is longer than `longest`."""
    rest = file.readline(room + 1)
    if len(rest.removesuffix(b"\n")) > room:
        raise _too_long(path, line_number(path, file.tell() - len(rest)), longest)
    return rest


def _too_long(path: AnyPath, line: int, longest: int) -> ConfigError:
    return ConfigError(
        f"{path}:{line}: the line has more than {longest:,} bytes; bring lines of text, at most a "
        "paragraph each"
    )


def _unreadable(path: AnyPath, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", "") or error
    return ConfigError(f"{path}: cannot read it to the end ({reason})")


def blocks(path: AnyPath, longest: int = LINE_BYTES) -> Iterator[list[str | None]]:
    """The lines of a file (see `pieces`) in blocks, split at line feeds only; None is a line that
    is not UTF-8. A byte order mark is left out.

    A block is less than `compressed.PIECE_BYTES` and `longest` together.

    Raises:
      ConfigError: as `pieces` does, or on a line of more than `longest` bytes, with its number.
    """
    yield from _blocks(pieces(path), path, 0, longest)


def _blocks(
    found: Iterator[bytes], path: AnyPath, start: int, longest: int
) -> Iterator[list[str | None]]:
    """The lines of the content of a stretch, which comes in pieces."""
    unfinished: list[bytes] = []
    size, before = 0, 0  # bytes of the unfinished line, and lines before it
    for piece in found:
        end = piece.find(b"\n")
        if size + (len(piece) if end < 0 else end) > longest:
            raise _too_long(path, before + first_line(path, start), longest)
        if end < 0:
            unfinished.append(piece)
            size += len(piece)
            continue
        head, _, tail = piece.rpartition(b"\n")
        block = b"".join([*unfinished, head])
        unfinished, size = [tail], len(tail)
        lines = _decode(block if start or before else block.removeprefix(codecs.BOM_UTF8))
        before += len(lines)
        yield lines
    rest = b"".join(unfinished)
    if rest:
        yield _decode(rest if start or before else rest.removeprefix(codecs.BOM_UTF8))


def aligned_blocks(paths: Sequence[AnyPath]) -> Iterator[tuple[list[str | None], ...]]:
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


def lines(path: AnyPath) -> Iterator[str]:
    """The lines of a file (or `STDIN`) in order, blank ones too; it raises as `blocks`, and a
    `ConfigError` that names file and line if one is not UTF-8."""
    for number, line in enumerate(itertools.chain.from_iterable(blocks(path)), 1):
        if line is None:
            raise ConfigError(f"{path}:{number}: the line is not UTF-8")
        yield line


def _decode(block: bytes) -> list[str | None]:
    try:
        return list(block.decode().split("\n"))
    except UnicodeDecodeError:
        return [decoded(line) for line in block.split(b"\n")]


def decoded(line: bytes) -> str | None:
    """The text of bytes; None if they are not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
