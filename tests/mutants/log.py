"""What was found of mutants, in a file that a later run goes on from and several runs share."""

from __future__ import annotations

import json
from pathlib import Path

from operators import Mutant

Key = tuple[str, str, str, str]


class Log:
    """A line of JSON a mutant: its key, and the test that noticed it ("" if none did).

    Args:
      path: None for one that is kept in memory.
    """

    def __init__(self, path: Path | None):
        self._path = path
        self.found: dict[Key, str] = {}
        self.read()

    def read(self) -> None:
        """Takes in what other runs have found meanwhile."""
        if self._path and self._path.exists():
            for line in self._path.read_text("utf-8").rpartition("\n")[0].splitlines():
                *key, test = json.loads(line)
                self.found[tuple(key)] = test

    def add(self, mutant: Mutant, test: str) -> None:
        """Notes a mutant."""
        self.found[mutant.key] = test
        if self._path:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([*mutant.key, test]) + "\n")
