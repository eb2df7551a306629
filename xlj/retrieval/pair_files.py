"""Files of sentence pairs in stretches: pairs a line, or two files of which line i is a side."""

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
        """The pairs, in order; a malformed one is a pair of empty sentences if it is skipped."""

    def as_json(self) -> dict[str, str | int]:
        """Where they are, as JSON."""


class LinesUnit:
    """Pairs a line, in a stretch of a file."""

    def __init__(self, file_range: FileRange):
        self._range = file_range

    def pairs(self, skipping: Skipping) -> Iterator[TextPair]:
        """`source TAB target`, or `source ||| target`; further columns stay in the line. A blank
        line is a pair of empty sentences."""
        place = self._range.place
        for number, line in enumerate(self._range.lines(skipping), 1):
            line = line.removesuffix("\r")
            columns = formats.split_columns(line) if line.strip() else ["", ""]
            if len(columns) < 2:
                skipping.skip(_COLUMNS, f"{place}{number}")
                columns = ["", ""]
            yield TextPair(columns[0].strip(), columns[1].strip(), line)

    def as_json(self) -> dict[str, str | int]:
        """The stretch."""
        return self._range.as_json()


class TwoFilesUnit:
    """Pairs of two files, which are read side by side and not cut."""

    def __init__(self, source: Path, target: Path):
        self._files = source, target

    def pairs(self, skipping: Skipping) -> Iterator[TextPair]:
        """Line i of both; a `ConfigError` if one has more lines."""
        for lines in itertools.zip_longest(*(files.lines(p, skipping) for p in self._files)):
            if None in lines:
                raise ConfigError(
                    f"{' and '.join(map(str, self._files))} have not as many lines; line i of one "
                    "must be the translation of line i of the other"
                )
            source, target = (" ".join(side.split()) for side in lines)  # a tab divides sides
            yield TextPair(source, target, f"{source}\t{target}")

    def as_json(self) -> dict[str, str | int]:
        """Both files."""
        return {"source": str(self._files[0]), "target": str(self._files[1])}


def paths(
    pairs: Path | None, source: Path | None, target: Path | None, folder: Path | None
) -> list[tuple[Path, ...]]:
    """The files of flags --input, or --source and --target: of one file, or of two, each.

    Args:
      folder: where standard input or a pipe is kept, which is read more than once; None to refuse
        it.

    Raises:
      ConfigError: if a file is not there, or there are not as many of both sides.
    """
    if source and target:
        sides = [
            file_ranges.files_of_flag("source", source),
            file_ranges.files_of_flag("target", target),
        ]
        if len(sides[0]) != len(sides[1]):
            raise ConfigError(
                f"--source={source} names {len(sides[0])} files, --target={target} {len(sides[1])}"
            )
        found: list[tuple[Path, ...]] = list(zip(*sides, strict=True))
    elif pairs is None or files.is_stream(pairs):
        if folder is None:
            raise ConfigError("--shard cannot share standard input or a pipe; name files")
        spooled = folder / "input"
        with spooled.open("wb") as file:
            if pairs is None or str(pairs) == "-":
                shutil.copyfileobj(sys.stdin.buffer, file)
            else:
                with pairs.open("rb") as stream:
                    shutil.copyfileobj(stream, file)
        found = [(spooled,)]
    else:
        found = [(path,) for path in file_ranges.files_of_flag("input", pairs)]
    for path in itertools.chain(*found):
        if not path.is_file():
            raise ConfigError(f"there is no file {path}")
        formats.refuse(path, files.head(path), ("|||",))
    return found


def units(found: Sequence[tuple[Path, ...]]) -> list[Unit]:
    """The units of work of the files that `paths` found, in order."""
    made: list[Unit] = []
    for each in found:
        if len(each) == 2:
            made.append(TwoFilesUnit(*each))
        else:
            made += [
                LinesUnit(part) for part in file_ranges.split_files([each[0]], file_ranges.BYTES)
            ]
    return made
