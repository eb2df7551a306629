"""A log of tested mutants, from which later runs resume and which parallel runs share."""

from __future__ import annotations

import json
from pathlib import Path

from operators import Mutant

Key = tuple[str, str, str, str]


class Log:
    """A file of one JSON line per mutant: its key, and the test that killed it ("" if none did).

    Args:
      path: the file; None to store the log in memory only.
    """

    def __init__(self, path: Path | None):
        self._path = path
        self.results: dict[Key, str] = {}
        self.read()

    def read(self) -> None:
        """Reads the results of other runs."""
        if self._path and self._path.exists():
            for line in self._path.read_text("utf-8").rpartition("\n")[0].splitlines():
                *key, test = json.loads(line)
                self.results[tuple(key)] = test

    def add(self, mutant: Mutant, test: str) -> None:
        """Adds the result of a mutant."""
        self.results[mutant.key] = test
        if self._path:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([*mutant.key, test]) + "\n")
