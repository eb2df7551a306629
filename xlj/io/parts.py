"""Writes a folder in parts, by several processes or in several runs, and its manifest.

Each part is a file and then a small record, which marks it as complete; so an interrupted job
resumes with the missing parts. `manifest.json` is written when all parts exist.
"""

import hashlib
from pathlib import Path

from xlj.config import ConfigError
from xlj.io import atomic, json_file
from xlj.io.json_file import Record

JOB = "job.json"
"""What the parts are made from, and how; the same for all parts."""
MANIFEST = "manifest.json"
"""The job, and `file`, `bytes`, `sha256` and further values of each part, in order."""


class Parts:
    """The parts of a folder; this process makes some of them.

    Args:
      folder: created if it does not exist.
      job: JSON with all that determines the content of the parts.
      count: number of parts.
      ending: ending of the files of parts.
      shard: (i, n): this process makes the parts i - 1, i - 1 + n, ..., counted from 0.

    Raises:
      ConfigError: if the folder contains parts of another job, or cannot be written.
    """

    def __init__(self, folder: Path, job: Record, count: int, ending: str, shard: tuple[int, int]):
        self._folder, self._ending, self._count, self._shard = folder, ending, count, shard
        self._job = {**job, "parts": count}
        with atomic.as_config_error(folder):
            folder.mkdir(parents=True, exist_ok=True)
        file = folder / JOB
        if not file.is_file():
            if any(folder.iterdir()):
                raise ConfigError(f"{folder} contains other files; name a new folder")
            json_file.write(file, self._job)
        before = json_file.read_object(file)
        if before != self._job:
            keys = sorted(before.keys() | self._job.keys())
            other = [key for key in keys if before.get(key) != self._job.get(key)]
            raise ConfigError(
                f"{folder} contains parts of another job: {', '.join(other)} differ (see {file}); "
                "name another folder, or delete it"
            )

    def remaining(self) -> list[int]:
        """Returns the parts that this process must still make."""
        first, step = self._shard
        return [k for k in range(first - 1, self._count, step) if self._record(k) is None]

    def file(self, part: int) -> Path:
        """Returns the file of a part; write it atomically (`atomic`)."""
        return self._folder / f"part-{part:05}{self._ending}"

    def mark_complete(self, part: int, **values: str | int) -> None:
        """Marks a part as complete; `values` are added to its record in the manifest."""
        file = self.file(part)
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256")
        record = {"file": file.name, "bytes": file.stat().st_size, "sha256": digest.hexdigest()}
        json_file.write(self._note(part), {**record, **values}, indent=None)

    def finish(self) -> list[Record] | None:
        """Writes the manifest if all parts exist, and returns their records; else returns None."""
        every = [self._record(part) for part in range(self._count)]
        records = [record for record in every if record is not None]
        if len(records) < self._count:
            return None
        json_file.write(self._folder / MANIFEST, {**self._job, "files": records})
        return records

    def count_missing(self) -> int:
        """Counts the parts that do not exist yet."""
        return sum(self._record(part) is None for part in range(self._count))

    def _note(self, part: int) -> Path:
        return self._folder / f"part-{part:05}.json"

    def _record(self, part: int) -> Record | None:
        """Returns the record of a part if it exists and is complete."""
        file, note = self.file(part), self._note(part)
        if not (file.is_file() and note.is_file()):
            return None
        record = json_file.read_object(note)
        return record if record.get("bytes") == file.stat().st_size else None
