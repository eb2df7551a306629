"""A folder that is made in parts, by several processes or one after another, and its manifest.

Each part is a file, followed by a small one that says it is whole, so what was killed goes on with
the parts that are missing. `manifest.json` is written once all are there.
"""

import hashlib
from pathlib import Path

from xlj.config import ConfigError
from xlj.io import atomic, json_file
from xlj.io.json_file import Record

JOB = "job.json"
"""What the parts are made of, and how: the same for all of them."""
MANIFEST = "manifest.json"
"""The job, and each part in order: `file`, `bytes`, `sha256`, and what was said of it."""


class Parts:
    """The parts of a folder, of which this process makes some.

    Args:
      folder: is made if need be.
      job: JSON of all that decides the content of the parts.
      count: how many there are.
      ending: of their files' names.
      shard: (i, n): this process makes the parts i - 1, i - 1 + n, ..., from 0.

    Raises:
      ConfigError: if the folder holds parts of another job, which is named, or cannot be written.
    """

    def __init__(self, folder: Path, job: Record, count: int, ending: str, shard: tuple[int, int]):
        self._folder, self._ending, self._count, self._shard = folder, ending, count, shard
        self._job = {**job, "parts": count}
        with atomic.as_config_error(folder):
            folder.mkdir(parents=True, exist_ok=True)
        file = folder / JOB
        if not file.is_file():
            if any(folder.iterdir()):
                raise ConfigError(f"{folder} holds something else; name a new folder")
            json_file.write(file, self._job)
        before = json_file.read_object(file)
        if before != self._job:
            keys = sorted(before.keys() | self._job.keys())
            other = [key for key in keys if before.get(key) != self._job.get(key)]
            raise ConfigError(
                f"{folder} holds parts of another job: {', '.join(other)} differ (see {file}); "
                "name another folder, or delete it"
            )

    def left(self) -> list[int]:
        """The parts that this process is to make, and that are not there."""
        first, step = self._shard
        return [k for k in range(first - 1, self._count, step) if self._record(k) is None]

    def file(self, part: int) -> Path:
        """Where a part goes; it is to be written whole or not at all (`atomic`)."""
        return self._folder / f"part-{part:05}{self._ending}"

    def made(self, part: int, **said: str | int) -> None:
        """Says that a part is whole; `said` goes into the manifest beside its size and SHA-256."""
        file = self.file(part)
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256")
        record = {"file": file.name, "bytes": file.stat().st_size, "sha256": digest.hexdigest()}
        json_file.write(self._note(part), {**record, **said}, indent=None)

    def finish(self) -> list[Record] | None:
        """Writes the manifest once all parts are there, and returns what it says of them; None as
        long as one of another process is missing."""
        found = [said for part in range(self._count) if (said := self._record(part)) is not None]
        if len(found) < self._count:
            return None
        json_file.write(self._folder / MANIFEST, {**self._job, "files": found})
        return found

    def missing(self) -> int:
        """How many parts are not there yet."""
        return sum(self._record(part) is None for part in range(self._count))

    def _note(self, part: int) -> Path:
        return self._folder / f"part-{part:05}.json"

    def _record(self, part: int) -> Record | None:
        """What was said of a part, if it is there and whole."""
        file, note = self.file(part), self._note(part)
        if not (file.is_file() and note.is_file()):
            return None
        record = json_file.read_object(note)
        return record if record.get("bytes") == file.stat().st_size else None
