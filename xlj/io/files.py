"""Text files, plain or compressed: their lines."""

import codecs
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from xlj.config import ConfigError
from xlj.io import compressed

NOT_TEXT = (".bz2", ".zip", ".7z", ".lz4", ".tar", ".tgz", ".parquet", ".arrow", ".json", ".jsonl")
STDIN = Path("-")
"""Standard input, where a file is asked for."""
LINE_BYTES = 1 << 20
"""The longest line that is read; of a sentence or a paragraph it is a thousand times too much."""


def is_stream(path: Path) -> bool:
    """Whether it is standard input, a pipe or a device, which may be read only once."""
    return path == STDIN or (path.exists() and not path.is_file() and not path.is_dir())


def pieces(path: Path, seen: Callable[[bytes], Any] = len) -> Iterator[bytes]:
    """The content of a file in pieces of at most `compressed.PIECE_BYTES`.

    Files that end in .gz, .xz or .zst are decompressed; standard input is not.

    Args:
      seen: called with the raw bytes of the file, piece by piece.

    Raises:
      ConfigError: if the file cannot be read or decompressed to its end.
    """

    def raw(file: BinaryIO) -> Iterator[bytes]:
        while found := file.read(compressed.PIECE_BYTES):
            seen(found)
            yield found

    try:
        with open(0, "rb", closefd=False) if path == STDIN else path.open("rb") as file:
            if path.suffix in compressed.ENDINGS:
                yield from compressed.decompressed(raw(file), path.suffix)
            else:
                yield from raw(file)
    except (OSError, EOFError) as error:
        raise ConfigError(
            f"{path}: cannot read it to the end ({getattr(error, 'strerror', '') or error})"
        ) from error


def blocks(path: Path, seen: Callable[[bytes], Any] = len) -> Iterator[list[str | None]]:
    """The lines of a file (see `pieces`) in blocks, split at line feeds only; None is a line that
    is not UTF-8. A byte order mark is left out.

    A block is less than `compressed.PIECE_BYTES` and `LINE_BYTES` together.

    Raises:
      ConfigError: as `pieces` does, or on a line of more than `LINE_BYTES`, with its number.
    """
    unfinished: list[bytes] = []
    size, before = 0, 0  # bytes of the unfinished line, and lines before it
    for piece in pieces(path, seen):
        end = piece.find(b"\n")
        if size + (len(piece) if end < 0 else end) > LINE_BYTES:
            raise ConfigError(
                f"{path}:{before + 1}: the line has more than {LINE_BYTES:,} bytes; bring lines of "
                "text, at most a paragraph each"
            )
        if end < 0:
            unfinished.append(piece)
            size += len(piece)
            continue
        head, _, tail = piece.rpartition(b"\n")
        block = b"".join([*unfinished, head])
        unfinished, size = [tail], len(tail)
        lines = _decode(block if before else block.removeprefix(codecs.BOM_UTF8))
        before += len(lines)
        yield lines
    rest = b"".join(unfinished)
    if rest:
        yield _decode(rest if before else rest.removeprefix(codecs.BOM_UTF8))


def aligned_blocks(paths: Sequence[Path]) -> Iterator[tuple[list[str | None], ...]]:
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


def lines(path: Path) -> Iterator[str]:
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
