"""Writes the output of a job to a folder in parts, by several processes or in several runs.

Each part is a content file and a small record file. The record is written last and marks the part
as complete, so an interrupted job resumes with the missing parts. When all parts are complete,
`PartFiles.finish` writes `manifest.json`.
"""

import hashlib
from pathlib import Path

from xlj.config import ConfigError
from xlj.io import atomic, json_file
from xlj.io.json_file import Record

JOB = "job.json"
"""Name of the file that describes the job: the input of the parts and the options."""
MANIFEST = "manifest.json"
"""Name of the file that contains the job and a list `files` with the record of each part, in order:
`file`, `bytes`, `sha256` and further values."""


class PartFiles:
    """The parts of a folder. Several processes can divide them.

    Args:
      folder: the folder of the parts; it is created if it does not exist.
      job: JSON values that determine the content of all parts.
      count: number of parts.
      ending: ending of the names of the content files, such as `.npy`.
      shard: (i, n) with a one-based i: this process makes the zero-based parts i - 1, i - 1 + n,
        i - 1 + 2 n, and so on.

    Raises:
      ConfigError: if the folder contains parts of another job or other files, or cannot be written.
    """

    def __init__(self, folder: Path, job: Record, count: int, ending: str, shard: tuple[int, int]):
        self._folder, self._ending, self._count, self._shard = folder, ending, count, shard
        self._job = {**job, "parts": count}
        with atomic.as_config_error(folder):
            folder.mkdir(parents=True, exist_ok=True)
        file = folder / JOB
        if not file.is_file():
            # A killed process may have left an unfinished file.
            if any(path.suffix != atomic.PART for path in folder.iterdir()):
                raise ConfigError(
                    f"{folder} contains other files, but no {JOB}; name a new or empty folder"
                )
            json_file.write(file, self._job)
        stored_job = json_file.read_object(file)
        if stored_job != self._job:
            keys = sorted(stored_job.keys() | self._job.keys())
            different = [key for key in keys if stored_job.get(key) != self._job.get(key)]
            raise ConfigError(
                f"{folder} contains parts of another job; these values differ from {file}: "
                f"{', '.join(different)}; name another folder, or delete this folder"
            )

    def remaining(self) -> list[int]:
        """Returns the numbers of the parts that this process must still make."""
        first, step = self._shard
        return [k for k in range(first - 1, self._count, step) if self._read_record(k) is None]

    def file(self, part: int) -> Path:
        """Returns the path of a part's content file; the caller writes it with `atomic.writing`."""
        return self._folder / f"part-{part:05}{self._ending}"

    def mark_complete(self, part: int, **values: str | float) -> None:
        """Writes the record of a part, which marks the part as complete.

        Args:
          part: the number of the part, whose content file is complete.
          values: further values of the record; the manifest contains them too.
        """
        file = self.file(part)
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256")
        record = {"file": file.name, "bytes": file.stat().st_size, "sha256": digest.hexdigest()}
        json_file.write(self._record_file(part), {**record, **values}, indent=None)

    def finish(self) -> list[Record] | None:
        """Writes the manifest and returns the records of all parts; None if a part is missing."""
        records_or_none = [self._read_record(part) for part in range(self._count)]
        records = [record for record in records_or_none if record is not None]
        if len(records) < self._count:
            return None
        json_file.write(self._folder / MANIFEST, {**self._job, "files": records})
        return records

    def count_missing(self) -> int:
        """Counts the incomplete parts of all processes."""
        return sum(self._read_record(part) is None for part in range(self._count))

    def _record_file(self, part: int) -> Path:
        return self._folder / f"part-{part:05}.json"

    def _read_record(self, part: int) -> Record | None:
        """Reads the record of a part; None if the part is missing or incomplete."""
        file, record_file = self.file(part), self._record_file(part)
        if not (file.is_file() and record_file.is_file()):
            return None
        record = json_file.read_object(record_file)
        return record if record.get("bytes") == file.stat().st_size else None
