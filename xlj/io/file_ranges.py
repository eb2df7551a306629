"""Divides text files into ranges of about one size, the same in all processes."""

import glob
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.config.paths import local_path
from xlj.io import files, storage
from xlj.io.malformed import Skipping

BYTES = 16 << 20
"""Length of a range, if its file can be split: some minutes of an encoder's work."""


class FileRange(NamedTuple):
    """The lines that begin in the bytes [start, stop) of a file; all if it cannot be split."""

    path: Path
    start: int
    stop: int

    def as_json(self) -> dict[str, str | int]:
        """Returns the file and the range as JSON values."""
        return {"input": str(self.path), "start": self.start, "stop": self.stop}

    @property
    def place(self) -> str:
        """The text before a line number in errors; lines are numbered from `start` on."""
        return f"{self.path}, from byte {self.start:,} on, line " if self.start else f"{self.path}:"

    def lines(self, skipping: Skipping | None = None) -> Iterator[str]:
        """Yields the lines; raises as `files.lines`."""
        blocks = files.range_blocks(self.path, self.start, self.stop)
        return (skipping or Skipping()).lines(itertools.chain.from_iterable(blocks), self.place)


def split_files(paths: Sequence[Path], size: int = BYTES) -> list[FileRange]:
    """Divides all files into ranges, in order; raises a `ConfigError` if one cannot be read."""
    ranges = []
    for path in paths:
        if not path.exists():
            raise ConfigError(f"no such file: {path}")
        if not path.is_file():
            raise ConfigError(f"{path} is not a regular file, so it cannot be split; name files")
        length = path.stat().st_size
        step = size if files.can_be_split(path, size) else max(length, 1)
        ranges += [FileRange(path, k, min(k + step, length)) for k in range(0, length, step)]
    return ranges


def files_of_flag(flag: str, pattern: str | Path) -> list[Path]:
    """Returns the files that a flag names: patterns with `*`, `?`, `[...]` and `**` as in a shell.

    Commas separate several patterns.

    Raises:
      ConfigError: if a pattern with such a character matches no file.
    """
    paths: list[Path] = []
    for each in str(pattern).split(","):
        matches = storage.matching_local(local_path(f"--{flag}", each))
        if not matches and glob.has_magic(each):
            raise ConfigError(f"--{flag}={pattern}: no file matches {each}")
        paths += matches or [Path(each)]  # reading it reports why it cannot be read
    return paths
