"""Writes files and folders atomically: an interrupted write leaves the old content or nothing.
Files that grow line by line lose at most their last line.
"""

import contextlib
import io
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

from xlj.config import ConfigError
from xlj.io import compressed, storage
from xlj.io.storage import AnyPath, Url

PART = ".part"
"""Ending of the names of unfinished files; a killed process may leave such files."""


@contextmanager
def writing(path: AnyPath) -> Iterator[BinaryIO]:
    """Opens a binary file that appears at `path` only when the block ends without an error.

    The file is then complete and on disk. If `path` is a symbolic link, the target of the link is
    replaced. A file of a bucket is uploaded at the end of the block. If the name ends in one of
    `compressed.ENDINGS`, the content is compressed, and the file does not support `seek`.

    Raises:
      ConfigError: if the file cannot be written, for example because the disk is full or the folder
        does not exist.
    """
    if isinstance(path, Url):
        with tempfile.TemporaryDirectory(prefix="xlj-") as scratch:
            part = Path(scratch, "file")
            with (
                io.BufferedWriter(_UnfinishedFile(part, path)) as file,
                _compressing(file, path) as out,
            ):
                yield out
            with as_config_error(path):
                storage.upload(part, path)
        return
    target = path.resolve()
    part = _unfinished_path(target)
    try:
        with as_config_error(path):
            raw = _UnfinishedFile(part, path)
        with io.BufferedWriter(raw) as file:
            with _compressing(file, path) as out:
                yield out
            file.flush()
            with as_config_error(path):
                os.fsync(file.fileno())
        with as_config_error(path):
            part.replace(target)
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    finally:
        with suppress(OSError):  # the folder does not exist or is read-only
            part.unlink(missing_ok=True)


def _compressing(file: BinaryIO, path: AnyPath) -> AbstractContextManager[BinaryIO]:
    """Returns a compressor that writes to the file; the file itself if `path` is not compressed."""
    if path.suffix not in compressed.ENDINGS:
        return nullcontext(file)
    return closing(compressed.compressor(file, path.suffix))


def write(path: AnyPath, content: bytes) -> None:
    """Writes `content` to `path` atomically.

    Raises:
      ConfigError: if the file cannot be written.
    """
    with writing(path) as file:
        file.write(content)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Creates a folder that appears at `path` only when the block ends without an error.

    Yields:
      The temporary path of the folder.

    Raises:
      ConfigError: if `path` exists or cannot be created.
    """
    if path.exists():
        raise ConfigError(f"{path} already exists; name a new folder")
    part = _unfinished_path(path)
    try:
        with as_config_error(path):
            part.mkdir(parents=True)
        yield part
        with as_config_error(path):
            part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def as_config_error(path: AnyPath) -> Iterator[None]:
    """Converts each `OSError` of the block to a `ConfigError`, which says why the write failed."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def _unfinished_path(path: Path) -> Path:
    """Returns a unique temporary path in the same folder.

    The name contains no process id, because processes in several containers may have the same id.
    """
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}{PART}")


class _UnfinishedFile(io.FileIO):
    """A new file with a temporary name; errors name the final path."""

    def __init__(self, part: Path, path: AnyPath):
        super().__init__(part, "xb")
        self._path = path

    def write(self, content: Any, /) -> int:
        with as_config_error(self._path):
            return super().write(content)


_UPLOAD_INTERVAL = 60.0
"""Seconds between uploads. Objects of buckets cannot grow, so each upload sends the whole file."""


class GrowingFiles:
    """Files in one folder, to which a process appends lines.

    If the folder is in a bucket, the files grow in a temporary local folder and are uploaded from
    there.

    Args:
      folder: the folder of the files; it need not exist yet.

    Attributes:
      folder: the argument `folder`.
      local_folder: the local folder in which the files grow; `folder` itself, if it is local.
    """

    def __init__(self, folder: AnyPath):
        self.folder, self._sent, self._last = folder, dict[Path, int](), time.monotonic()
        is_url = isinstance(folder, Url)
        self.local_folder = Path(tempfile.mkdtemp(prefix="xlj-")) if is_url else Path(str(folder))

    def path(self, name: str) -> Path:
        """Returns the local path of a file; if only the bucket has the file, downloads it first.

        Raises:
          OSError: if the server of the bucket does not respond.
        """
        path = self.local_folder / name
        if isinstance(self.folder, Url) and not path.exists():
            remote = self.folder / name
            if remote.is_file():
                path.write_bytes(remote.read_bytes())
        return path

    def send(self, now: bool = False) -> None:
        """Uploads the files that have grown; does nothing for a local folder.

        Args:
          now: True uploads the files at once. False uploads them only if the last upload was at
            least 60 seconds ago, and ignores a failed upload, which the next call retries.

        Raises:
          ConfigError: if an upload with `now=True` fails.
        """
        if not isinstance(self.folder, Url):
            return
        if not now:
            if time.monotonic() - self._last >= _UPLOAD_INTERVAL:
                self._last = time.monotonic()
                with contextlib.suppress(ConfigError):
                    self.send(now=True)
            return
        for path in sorted(self.local_folder.rglob("*")):
            if path.is_file() and self._sent.get(path) != (size := path.stat().st_size):
                url = self.folder / path.relative_to(self.local_folder).as_posix()
                with as_config_error(url):
                    storage.upload(path, url)
                self._sent[path] = size
        self._last = time.monotonic()

    def close(self) -> None:
        """Uploads the files that have grown, and removes the temporary local folder.

        Raises:
          ConfigError: if an upload fails.
        """
        try:
            self.send(now=True)
        finally:
            if isinstance(self.folder, Url):
                shutil.rmtree(self.local_folder, ignore_errors=True)
