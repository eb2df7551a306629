"""Writes files and folders atomically: they are complete or absent, even after a crash."""

import io
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

from xlj.config import ConfigError
from xlj.io import compressed, storage
from xlj.io.storage import AnyPath, Url

PART = ".part"
"""Ending of unfinished files; a killed run may leave some."""


@contextmanager
def writing(path: AnyPath) -> Iterator[BinaryIO]:
    """Opens a binary file that appears under `path` only when the block ends without an error.

    The file is then complete and on disk. A symbolic link stays a link. A file of a bucket is sent
    when it is complete. If the name ends in one of `compressed.ENDINGS`, the content is compressed;
    such a file cannot seek.

    Raises:
      ConfigError: if the file cannot be written: the disk is full, or the folder does not exist.
    """
    if isinstance(path, Url):
        with tempfile.TemporaryDirectory(prefix="xlj-") as scratch:
            part = Path(scratch, "file")
            with io.BufferedWriter(_Raw(part, path)) as file, _compressing(file, path) as out:
                yield out
            with as_config_error(path):
                storage.send(part, path)
        return
    target = path.resolve()
    part = _part_of(target)
    try:
        with as_config_error(path):
            raw = _Raw(part, path)
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
    """Returns the file, or a compressor that writes to it."""
    if path.suffix not in compressed.ENDINGS:
        return nullcontext(file)
    return closing(compressed.compressor(file, path.suffix))


def write(path: AnyPath, content: bytes) -> None:
    """Writes `content` to `path` atomically; raises as `writing`."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Creates a folder that appears under `path` only when the block ends without an error.

    Raises:
      ConfigError: if `path` exists or cannot be created.
    """
    if path.exists():
        raise ConfigError(f"{path} already exists; name a new folder")
    part = _part_of(path)
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
    """Converts each `OSError` in the block to a `ConfigError`: why `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def _part_of(path: Path) -> Path:
    """Returns a unique name beside `path`; process ids could repeat in containers that share it."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}{PART}")


class _Raw(io.FileIO):
    """A new file whose errors contain its final name."""

    def __init__(self, part: Path, path: AnyPath):
        super().__init__(part, "xb")
        self._path = path

    def write(self, content: Any, /) -> int:
        with as_config_error(self._path):
            return super().write(content)
