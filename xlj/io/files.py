"""Text files, plain or compressed: their lines, and one scan of each before any work."""

from __future__ import annotations

import codecs
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tqdm import tqdm

from xlj.config import ConfigError
from xlj.io import atomic, compressed

NOT_TEXT = (".bz2", ".zip", ".7z", ".lz4", ".tar", ".tgz", ".parquet", ".arrow", ".json", ".jsonl")
STDIN = Path("-")
"""Standard input, where a file is asked for."""
LINE_BYTES = 1 << 20
"""The longest line that is read; of a sentence or a paragraph it is a thousand times too much."""


@dataclasses.dataclass(frozen=True)
class Scan:
    """What one reading of a whole file found.

    Attributes:
      sha256: of the file's bytes as they are on disk.
      lines: all lines, blank and invalid ones too.
      invalid, first_invalid: lines that are not UTF-8, and the first one's number (0: none).
      odd_line, odd_tabs: first line (from 1) without exactly `columns - 1` tabs, and its tabs.
      sentences, characters: lines with text, and their characters, for each column.
    """

    sha256: str
    lines: int
    invalid: int
    first_invalid: int
    odd_line: int
    odd_tabs: int
    sentences: tuple[int, ...]
    characters: tuple[int, ...]


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
        raise ConfigError(f"{path}: cannot read it to the end ({error})") from error


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
    """The lines of files of which line n belongs to line n, in blocks of equal length of each.

    Raises:
      ConfigError: as `blocks` does, or if they have not as many lines.
    """
    sides = [blocks(path) for path in paths]
    held = [next(side, []) for side in sides]
    while all(held):
        length = min(map(len, held))
        yield tuple(block[:length] for block in held)
        held = [block[length:] or next(side, []) for block, side in zip(held, sides, strict=True)]
    if any(held):
        raise ConfigError(f"{' and '.join(map(str, paths))} have not as many lines")


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


def scan(path: Path, columns: int, progress: Callable[[int], Any] = bool) -> Scan:
    """Reads a whole file once; problems are in the result, so that they can be cached.

    Args:
      columns: 1 for a line a sentence, 2 for tab-separated pairs.
      progress: called with the number of raw bytes read, piece by piece.

    Raises:
      ConfigError: if the file cannot be read or decompressed to its end.
    """
    digest = hashlib.sha256()

    def seen(raw: bytes) -> None:
        digest.update(raw)
        progress(len(raw))

    lines = invalid = first_invalid = odd_line = odd_tabs = 0
    sentences, characters = [0] * columns, [0] * columns
    for block in blocks(path, seen):
        for number, line in enumerate(block, lines + 1):
            if line is None:
                invalid += 1
                first_invalid = first_invalid or number
                continue
            sides = line.split("\t") if columns > 1 else [line]
            if len(sides) != columns:
                if not odd_line:
                    odd_line, odd_tabs = number, len(sides) - 1
                continue
            for column, side in enumerate(sides):
                if side and not side.isspace():
                    sentences[column] += 1
                    characters[column] += len(side)
        lines += len(block)
    return Scan(
        digest.hexdigest(),
        lines,
        invalid,
        first_invalid,
        odd_line,
        odd_tabs,
        tuple(sentences),
        tuple(characters),
    )


class ScanCache:
    """Scans of files, kept in a JSON file by path, size and modification time."""

    def __init__(self, file: Path):
        self._file = file
        self._known = self._load()

    def scan_all(self, inputs: list[tuple[Path, int]]) -> dict[tuple[Path, int], Scan]:
        """The scan of each (file, columns); files that are new or have changed are read.

        Raises:
          ConfigError: if a file cannot be read or decompressed to its end.
        """
        for path, _ in inputs:
            if is_stream(path):
                raise ConfigError(f"{path} is no file; rows are made from what can be read twice")
        new = [item for item in dict.fromkeys(inputs) if self._lookup(*item) is None]
        if new:
            size = sum(path.stat().st_size for path, _ in new)
            with tqdm(total=size, desc="reading inputs", unit="B", unit_scale=True) as bar:
                for path, columns in new:
                    stamp = _stamp(path)  # before reading: a change while reading is seen next time
                    found = dataclasses.asdict(scan(path, columns, bar.update))
                    self._known[_key(path, columns)] = {"stamp": stamp, "scan": found}
            merged = {**self._load(), **self._known}
            atomic.write(self._file, json.dumps(merged, indent=1, sort_keys=True).encode())
        scans = {}
        for item in inputs:
            found_scan = self._lookup(*item)
            if found_scan is None:
                raise ConfigError(f"{item[0]} changed while it was read; start again")
            scans[item] = found_scan
        return scans

    def _lookup(self, path: Path, columns: int) -> Scan | None:
        entry = self._known.get(_key(path, columns))
        if entry is None or entry["stamp"] != _stamp(path):
            return None
        found = Scan(**entry["scan"])  # JSON made lists of the tuples
        return dataclasses.replace(
            found, sentences=tuple(found.sentences), characters=tuple(found.characters)
        )

    def _load(self) -> dict[str, Any]:
        try:
            return json.loads(self._file.read_bytes())
        except (FileNotFoundError, ValueError):  # a damaged cache only costs a second reading
            return {}


def _key(path: Path, columns: int) -> str:
    return f"{columns}:{path.absolute()}"


def _stamp(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


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
