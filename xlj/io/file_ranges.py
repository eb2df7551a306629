"""Divides text files into ranges of about equal size, the same ranges in all processes."""

import glob
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.config.paths import local_path
from xlj.io import files, storage
from xlj.io.columns import WHOLE_LINES, Layout
from xlj.io.malformed import Skipping

RANGE_BYTES = 16 << 20
"""Size of a range of a file that can be split, in bytes; an encoder needs some minutes for it."""
_MAX_PRINTED = 5
"""How many of the files that cannot be split are printed."""


class FileRange(NamedTuple):
    """The lines that begin in the bytes [start, stop) of a file.

    A file that cannot be split, such as a .gz file, is one range (`files.can_be_split`).
    """

    path: Path
    start: int
    stop: int

    def as_json(self) -> dict[str, str | int]:
        """Returns the file and the range as JSON values."""
        return {"input": str(self.path), "start": self.start, "stop": self.stop}

    @property
    def place(self) -> str:
        """The text before a line number in errors; line 1 is the first line of the range."""
        return f"{self.path}, from byte {self.start:,} on, line " if self.start else f"{self.path}:"

    def lines(
        self, skipping: Skipping | None = None, layout: Layout = WHOLE_LINES
    ) -> Iterator[str]:
        """Yields the lines of the range, or their texts.

        Args:
          skipping: the policy for malformed lines; None raises an error.
          layout: the column of the texts; by default, a line is a text.

        Raises:
          ConfigError: if the file cannot be read, or on a malformed line that the policy does not
            skip.
        """
        blocks = files.range_blocks(self.path, self.start, self.stop)
        first = int(layout.has_header and not self.start)
        lines = itertools.islice(itertools.chain.from_iterable(blocks), first, None)
        return (skipping or Skipping()).lines(map(layout.text, lines), self.place, first + 1)


def split_files(paths: Sequence[Path], size: int = RANGE_BYTES) -> list[FileRange]:
    """Divides files into ranges of about `size` bytes, in order.

    Prints the larger files that cannot be split.

    Raises:
      ConfigError: if a file does not exist, is not a regular file, or cannot be read.
    """
    ranges: list[FileRange] = []
    unsplittable: list[Path] = []
    for path in paths:
        if not path.exists():
            raise ConfigError(f"no such file: {path}")
        if not path.is_file():
            raise ConfigError(
                f"{path} is a folder, a pipe or a device; expected the path of a regular file"
            )
        length = path.stat().st_size
        step = size
        if length > size and not files.can_be_split(path):
            step = length
            unsplittable.append(path)
        ranges += [FileRange(path, k, min(k + step, length)) for k in range(0, length, step)]
    if unsplittable:
        print(
            f"compressed files cannot be split, so a single process reads each: "
            f"{', '.join(map(str, unsplittable[:_MAX_PRINTED]))}"
            + f" and {len(unsplittable) - _MAX_PRINTED:,} more" * (len(unsplittable) > _MAX_PRINTED)
            + ". To use more processes, decompress or split them",
            file=sys.stderr,
        )
    return ranges


def files_of_flag(flag: str, pattern: str | Path) -> list[Path]:
    """Returns the files that the value of a command-line flag names.

    Args:
      flag: the name of the flag, without `--`, for errors.
      pattern: the value: paths with the wildcards `*`, `?`, `[...]` and `**`, separated by commas.

    Raises:
      ConfigError: if a path with a wildcard matches no file.
    """
    paths: list[Path] = []
    for part in str(pattern).split(","):
        matches = storage.find_local_files(local_path(f"--{flag}", part))
        if not matches and glob.has_magic(part):
            raise ConfigError(f"--{flag}={pattern}: no file matches {part}")
        paths += matches or [Path(part)]  # the reader of a missing file raises the error
    return paths
