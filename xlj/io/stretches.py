"""Stretches of text files: units of work of about one size, the same whoever lists them."""

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
"""How long a stretch is, where its file can be cut: some minutes of an encoder's work."""


class Stretch(NamedTuple):
    """The lines of a file that begin in its bytes [start, stop); all of it if it cannot be cut."""

    path: Path
    start: int
    stop: int

    def described(self) -> dict[str, str | int]:
        """Where it is, as JSON."""
        return {"input": str(self.path), "start": self.start, "stop": self.stop}

    @property
    def place(self) -> str:
        """What errors name a line by, in front of its number, from `start` on."""
        return f"{self.path}, from byte {self.start:,} on, line " if self.start else f"{self.path}:"

    def lines(self, skipping: Skipping | None = None) -> Iterator[str]:
        """Its lines; raises as `files.lines`."""
        blocks = files.stretch(self.path, self.start, self.stop)
        return (skipping or Skipping()).lines(itertools.chain.from_iterable(blocks), self.place)


def of(paths: Sequence[Path], size: int = BYTES) -> list[Stretch]:
    """The stretches of all files, in order; a `ConfigError` if one cannot be read."""
    found = []
    for path in paths:
        if not path.exists():
            raise ConfigError(f"there is no file {path}")
        if not path.is_file():
            raise ConfigError(f"{path} is no file, so it cannot be cut; name files")
        length = path.stat().st_size
        step = size if files.can_be_cut(path, size) else max(length, 1)
        found += [Stretch(path, k, min(k + step, length)) for k in range(0, length, step)]
    return found


def named(flag: str, pattern: str | Path) -> list[Path]:
    """The files that a flag names, with `*`, `?`, `[...]` and `**` as in a shell, several with
    commas between; a `ConfigError` if a pattern stands for no file."""
    found: list[Path] = []
    for each in str(pattern).split(","):
        matches = storage.matching_here(local_path(f"--{flag}", each))
        if not matches and glob.has_magic(each):
            raise ConfigError(f"--{flag}={pattern}: there is no file {each}")
        found += matches or [Path(each)]  # reading it says why it cannot be read
    return found
