"""Shards: the rows of units of work, on disk until they are joined.

A shard is `<folder>/<unit>.shard` (training rows, their CRC32s, held-out rows, end to end) and
`<unit>.json` beside it, written after it, with its counts and sha256.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np

from xlj.config import ConfigError
from xlj.data.rows.store import CRC, row_crcs
from xlj.io import atomic, json_file

_END = "end.json"


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts of what a unit yielded, as in `store.TaskRows`; of its training and held-out rows the
    `rows`, `examples` and `sentences`."""

    train: dict[str, int]
    held_out: dict[str, int]
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
    """The shards of one task, in a folder of their own; small, so that workers can be sent it. The
    type of rows is NumPy's string."""

    folder: Path
    length: int
    dtype: str

    def file(self, index: int) -> Path:
        """Where the shard of a unit is."""
        return self.folder / f"{index:08d}.shard"

    def write(self, index: int, counts: Counts, train: np.ndarray, held_out: np.ndarray) -> None:
        """Writes the shard of a unit: its counts and rows, [rows, length] of `dtype`."""
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
            content = json_file.read_object(file.with_suffix(".json"))
            body = file.read_bytes()
            sha256 = content.pop("sha256")
            counts = Counts(**content)
            row_bytes = self.length * dtype.itemsize
            rows, held = counts.train["rows"], counts.held_out["rows"]
            sizes = [rows * row_bytes, rows * CRC.itemsize, held * row_bytes]
            if hashlib.sha256(body).hexdigest() != sha256 or sum(sizes) != len(body):
                return None
        except (ConfigError, FileNotFoundError, TypeError, KeyError):
            return None
        train, crcs, held_out = np.split(np.frombuffer(body, np.uint8), np.cumsum(sizes[:-1]))
        train, held_out = (part.view(dtype).reshape(-1, self.length) for part in (train, held_out))
        return counts, train, crcs.view(CRC), held_out

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
