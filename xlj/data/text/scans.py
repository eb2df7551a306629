"""Scans: one reading of each input file before any work, and what it found."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from xlj.config import ConfigError
from xlj.io import atomic, files, json_file


@dataclasses.dataclass(frozen=True)
class Scan:
    """Findings of one reading of a whole file.

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


def scan(path: Path, columns: int, progress: Callable[[int], Any] = bool) -> Scan:
    """Reads a whole file once. Problems are in the result, so that they can be kept, but for a file
    that cannot be read to its end: that is a `ConfigError`.

    Args:
      columns: 1 for a line a sentence, 2 for tab-separated pairs.
      progress: called with the number of raw bytes read, piece by piece.
    """
    digest = hashlib.sha256()

    def seen(raw: bytes) -> None:
        digest.update(raw)
        progress(len(raw))

    lines = invalid = first_invalid = odd_line = odd_tabs = 0
    sentences, characters = [0] * columns, [0] * columns
    for block in files.blocks(path, seen):
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
    counts = tuple(sentences), tuple(characters)
    return Scan(digest.hexdigest(), lines, invalid, first_invalid, odd_line, odd_tabs, *counts)


def scan_all(inputs: list[tuple[Path, int]], file: Path) -> dict[tuple[Path, int], Scan]:
    """The scan of each (file, columns); those that are new or have changed are read.

    Each scan is kept as soon as it is done, so that one that is interrupted goes on there.

    Args:
      file: JSON, with the scans by path, size and modification time. Whatever is wrong with it
        costs a second reading of the inputs, and nothing else.

    Raises:
      ConfigError: as `scan`.
    """
    for path, _ in inputs:
        if files.is_stream(path):
            raise ConfigError(f"{path} is no file; rows are built from what can be read twice")
    known = _load(file)
    new = [item for item in dict.fromkeys(inputs) if _lookup(known, *item) is None]
    size = sum(path.stat().st_size for path, _ in new)
    with tqdm(total=size, desc="reading inputs", unit="B", unit_scale=True, disable=not new) as bar:
        for path, columns in new:
            stamp = _stamp(path)  # before reading: a change while reading is seen next time
            found = dataclasses.asdict(scan(path, columns, bar.update))
            known[_key(path, columns)] = {"stamp": stamp, "scan": found}
            known = {**_load(file), **known}  # another process may have scanned others
            with contextlib.suppress(ConfigError):
                atomic.write(file, json.dumps(known, indent=1, sort_keys=True).encode())
    scans = {}
    for item in inputs:
        kept = _lookup(known, *item)
        if kept is None:
            raise ConfigError(f"{item[0]} changed while it was read; start again")
        scans[item] = kept
    return scans


def _lookup(known: dict[str, Any], path: Path, columns: int) -> Scan | None:
    """The scan that is kept of a file as it is; None if there is none, or it is damaged."""
    entry = known.get(_key(path, columns))
    if not isinstance(entry, dict) or entry.get("stamp") != _stamp(path):
        return None
    try:
        content = entry["scan"]
        counts = {name: tuple(content[name]) for name in ("sentences", "characters")}
        found = Scan(**{**content, **counts})
    except (TypeError, KeyError):
        return None
    alone = (found.lines, found.invalid, found.first_invalid, found.odd_line, found.odd_tabs)
    numbers = alone + found.sentences + found.characters
    sized = len(found.sentences) == len(found.characters) == columns
    right = sized and isinstance(found.sha256, str) and all(type(n) is int for n in numbers)
    return found if right else None


def _load(file: Path) -> dict[str, Any]:
    try:
        content = json_file.parse(file.read_bytes(), f"{file}")
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _key(path: Path, columns: int) -> str:
    return f"{columns}:{path.absolute()}"


def _stamp(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]
