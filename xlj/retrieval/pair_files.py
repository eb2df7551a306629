"""Reads files of sentence pairs in units of work: lines with a pair, or two parallel files."""

import itertools
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from xlj.config import ConfigError
from xlj.io import file_ranges, files, formats
from xlj.io.file_ranges import FileRange
from xlj.io.malformed import Malformed, Skipping
from xlj.retrieval.pair_scores import TextPair

_COLUMNS = Malformed("wrong number of columns", ": expected `source TAB target`")


class Unit(Protocol):
    """Pairs that one process scores at a time."""

    def pairs(self, skipping: Skipping) -> Iterator[TextPair]:
        """Yields the pairs in order; a skipped malformed pair becomes a pair of empty sentences."""

    def as_json(self) -> dict[str, str | int]:
        """Returns the place of the pairs, for JSON."""


class LinesUnit:
    """A part of a file with one pair per line."""

    def __init__(self, file_range: FileRange):
        self._range = file_range

    def pairs(self, skipping: Skipping) -> Iterator[TextPair]:
        """Yields pairs from lines `source TAB target` or `source ||| target`.

        Further columns remain in `TextPair.line`. A blank line is a pair of empty sentences.
        """
        place = self._range.place
        for number, line in enumerate(self._range.lines(skipping), 1):
            line = line.removesuffix("\r")
            columns = formats.split_columns(line) if line.strip() else ["", ""]
            if len(columns) < 2:
                skipping.skip(_COLUMNS, f"{place}{number}")
                columns = ["", ""]
            yield TextPair(columns[0].strip(), columns[1].strip(), line)

    def as_json(self) -> dict[str, str | int]:
        """Returns the part of the file, for JSON."""
        return self._range.as_json()


class TwoFilesUnit:
    """Pairs of two parallel files, which are not split."""

    def __init__(self, source: Path, target: Path):
        self._files = source, target

    def pairs(self, skipping: Skipping) -> Iterator[TextPair]:
        """Yields line i of both files; raises a `ConfigError` if they differ in length."""
        for lines in itertools.zip_longest(*(files.lines(p, skipping) for p in self._files)):
            if None in lines:
                raise ConfigError(
                    f"{' and '.join(map(str, self._files))} differ in their number of lines; they "
                    "must be translations line by line"
                )
            # Tabs are removed, because a tab separates the sides in `TextPair.line`.
            source, target = (" ".join(side.split()) for side in lines)
            yield TextPair(source, target, f"{source}\t{target}")

    def as_json(self) -> dict[str, str | int]:
        """Returns both files, for JSON."""
        return {"source": str(self._files[0]), "target": str(self._files[1])}


def paths(
    pairs: Path | None, source: Path | None, target: Path | None, folder: Path | None
) -> list[tuple[Path, ...]]:
    """Returns the files of --input (one each), or of --source and --target (two each).

    Args:
      folder: where to copy standard input or a pipe, because input is read more than once; None to
        refuse them.

    Raises:
      ConfigError: if a file does not exist, or the sides differ in their number of files.
    """
    if source and target:
        sides = [
            file_ranges.files_of_flag("source", source),
            file_ranges.files_of_flag("target", target),
        ]
        if len(sides[0]) != len(sides[1]):
            raise ConfigError(
                f"--source={source} names {len(sides[0])} files, but --target={target} "
                f"{len(sides[1])}; expected as many"
            )
        result: list[tuple[Path, ...]] = list(zip(*sides, strict=True))
    elif pairs is None or files.is_stream(pairs):
        if folder is None:
            raise ConfigError("--shard cannot split standard input or a pipe; give files")
        spooled = folder / "input"
        with spooled.open("wb") as file:
            if pairs is None or str(pairs) == "-":
                shutil.copyfileobj(sys.stdin.buffer, file)
            else:
                with pairs.open("rb") as stream:
                    shutil.copyfileobj(stream, file)
        result = [(spooled,)]
    else:
        result = [(path,) for path in file_ranges.files_of_flag("input", pairs)]
    for path in itertools.chain(*result):
        if not path.is_file():
            raise ConfigError(f"{path}: no such file")
        formats.refuse(path, files.head(path), ("|||",))
    return result


def units(of_pairs: Sequence[tuple[Path, ...]]) -> list[Unit]:
    """Returns the units of work for the files from `paths`, in order."""
    result: list[Unit] = []
    for each in of_pairs:
        if len(each) == 2:
            result.append(TwoFilesUnit(*each))
        else:
            parts = file_ranges.split_files([each[0]], file_ranges.RANGE_BYTES)
            result += [LinesUnit(part) for part in parts]
    return result
