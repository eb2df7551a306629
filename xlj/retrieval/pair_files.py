"""Reads sentence pairs in units of work, from files with a pair per line or from parallel files."""

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
    """A unit of work: pairs that one process scores at a time."""

    def pairs(self, skipping: Skipping) -> Iterator[TextPair]:
        """Yields the pairs in order. A malformed pair that is skipped becomes two empty
        sentences."""

    def as_json(self) -> dict[str, str | int]:
        """Returns a JSON object that identifies the pairs: files, and the range of lines."""


class LinesUnit:
    """A unit of work: a range of a file with one pair per line."""

    def __init__(self, file_range: FileRange):
        self._range = file_range

    def pairs(self, skipping: Skipping) -> Iterator[TextPair]:
        """Yields pairs from lines `source TAB target` or `source ||| target`.

        `TextPair.line` contains further columns too. A blank line becomes two empty sentences.
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
        """Returns the range of the file as a JSON object."""
        return self._range.as_json()


class TwoFilesUnit:
    """A unit of work: all pairs of two parallel files."""

    def __init__(self, source: Path, target: Path):
        self._files = source, target

    def pairs(self, skipping: Skipping) -> Iterator[TextPair]:
        """Yields the pairs: line i of both files.

        Raises:
          ConfigError: if the files have different numbers of lines.
        """
        for lines in itertools.zip_longest(*(files.lines(p, skipping) for p in self._files)):
            if None in lines:
                raise ConfigError(
                    f"{' and '.join(map(str, self._files))} have different numbers of lines; "
                    "expected translations line by line"
                )
            # Whitespace becomes single spaces, because a tab separates the two sentences in
            # `TextPair.line`.
            source, target = (" ".join(side.split()) for side in lines)
            yield TextPair(source, target, f"{source}\t{target}")

    def as_json(self) -> dict[str, str | int]:
        """Returns the paths of both files as a JSON object."""
        return {"source": str(self._files[0]), "target": str(self._files[1])}


def find_files(
    pairs: Path | None, source: Path | None, target: Path | None, folder: Path | None
) -> list[tuple[Path, ...]]:
    """Returns the input files: tuples (file,) for --input, or (source file, target file).

    Args:
      pairs: the value of --input; `-` or None for standard input.
      source, target: the values of --source and --target.
      folder: the folder into which standard input or a pipe is copied, because input is read more
        than once. With None, such input is an error.

    Raises:
      ConfigError: if a file does not exist, or --source and --target have different numbers of
        files.
    """
    if source and target:
        sides = [
            file_ranges.files_of_flag("source", source),
            file_ranges.files_of_flag("target", target),
        ]
        if len(sides[0]) != len(sides[1]):
            raise ConfigError(
                f"--source={source} has {len(sides[0])} files, but --target={target} has "
                f"{len(sides[1])}; expected equal numbers"
            )
        result: list[tuple[Path, ...]] = list(zip(*sides, strict=True))
    elif pairs is None or files.is_stream(pairs):
        if folder is None:
            raise ConfigError("--shard cannot split standard input or a pipe; set --input to files")
        copy = folder / "input"
        with copy.open("wb") as file:
            if pairs is None or str(pairs) == "-":
                shutil.copyfileobj(sys.stdin.buffer, file)
            else:
                with pairs.open("rb") as stream:
                    shutil.copyfileobj(stream, file)
        result = [(copy,)]
    else:
        result = [(path,) for path in file_ranges.files_of_flag("input", pairs)]
    for path in itertools.chain(*result):
        if not path.is_file():
            raise ConfigError(f"{path} does not exist; expected a file with sentence pairs")
        formats.refuse(path, files.head(path), ("|||",))
    return result


def split_units(files_of_pairs: Sequence[tuple[Path, ...]]) -> list[Unit]:
    """Returns the units of work for the files from `find_files`, in order."""
    result: list[Unit] = []
    for each in files_of_pairs:
        if len(each) == 2:
            result.append(TwoFilesUnit(*each))
        else:
            parts = file_ranges.split_files([each[0]], file_ranges.RANGE_BYTES)
            result += [LinesUnit(part) for part in parts]
    return result
