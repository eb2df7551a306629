"""Shards: the rows of units of work, on disk until they are joined.

A shard is `<folder>/<unit>.shard` (training rows, their CRC32s, held-out rows, end to end) and
`<unit>.json` beside it, written after it, with its counts and sha256.
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.data.rows.store import CRC, row_crcs
from xlj.io import atomic, json_file

_END = "end.json"


@dataclasses.dataclass(frozen=True)
class SplitCounts:
    """Training or held-out rows of a shard, counted as in `store.Split`."""

    rows: int
    examples: int
    sentences: int


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts of what a unit yielded, as in `store.TaskRows`."""

    train: SplitCounts
    held_out: SplitCounts
    sentences: int
    cut: int
    dropped: dict[str, int]


@dataclasses.dataclass(frozen=True)
class End:
    """Counts of a task whose text was read to its end: its units, and lines left out by reason."""

    units: int
    skipped: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Shards:
    """The shards of one task; small, so that workers can be sent it.

    Attributes:
      folder: of their own.
      length: tokens in a row.
      dtype: of rows, as NumPy's string.
    """

    folder: Path
    length: int
    dtype: str

    def file(self, index: int) -> Path:
        """Where the shard of a unit is."""
        return self.folder / f"{index:08d}.shard"

    def write(self, index: int, counts: Counts, train: np.ndarray, held_out: np.ndarray) -> None:
        """Writes the shard of a unit.

        Args:
          train, held_out: rows [rows, length] of `dtype`.
        """
        body = train.tobytes() + row_crcs(train).tobytes() + held_out.tobytes()
        content = {**dataclasses.asdict(counts), "sha256": hashlib.sha256(body).hexdigest()}
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic.write(self.file(index), body)
        atomic.write(self.file(index).with_suffix(".json"), json.dumps(content).encode())

    def read(self, index: int) -> tuple[Counts, np.ndarray, np.ndarray, np.ndarray] | None:
        """(counts, training rows, their CRC32s, held-out rows) of a unit; None if its shard is
        missing or damaged."""
        file, dtype = self.file(index), np.dtype(self.dtype)
        try:
            content: dict[str, Any] = json_file.read_object(file.with_suffix(".json"))
            body = file.read_bytes()
            sha256 = content.pop("sha256")
            for name in ("train", "held_out"):
                content[name] = SplitCounts(**content[name])
            counts = Counts(**content)
        except (ConfigError, FileNotFoundError, TypeError, KeyError):
            return None
        if hashlib.sha256(body).hexdigest() != sha256:
            return None
        ends = np.cumsum(
            [
                counts.train.rows * self.length * dtype.itemsize,
                counts.train.rows * CRC.itemsize,
                counts.held_out.rows * self.length * dtype.itemsize,
            ]
        )
        if ends[-1] != len(body):
            return None
        train = np.frombuffer(body[: ends[0]], dtype).reshape(-1, self.length)
        held_out = np.frombuffer(body[ends[1] :], dtype).reshape(-1, self.length)
        return counts, train, np.frombuffer(body[ends[0] : ends[1]], CRC), held_out

    def write_end(self, end: End) -> None:
        """Notes that all of the task's text was read."""
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic.write(self.folder / _END, json.dumps(dataclasses.asdict(end)).encode())

    def read_end(self) -> End | None:
        """The note of `write_end`; None if there is none, or it is damaged."""
        try:
            return End(**json_file.read_object(self.folder / _END))
        except (ConfigError, TypeError):
            return None
