"""Files and folders that are either whole or absent, whenever the machine stops."""

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
"""Ending of what is still being written; a run that was killed may leave some."""


@contextmanager
def writing(path: AnyPath) -> Iterator[BinaryIO]:
    """A binary file that appears under `path`, complete and on disk, when the block ends well. A
    link stays one. A file of a bucket is sent when it is complete. Where the name ends in one of
    `compressed.ENDINGS`, what is written is compressed so; such a file cannot seek.

    Raises:
      ConfigError: if the file cannot be written: the disk is full, the folder is not there.
    """
    if isinstance(path, Url):
        with tempfile.TemporaryDirectory(prefix="xlj-") as scratch:
            part = Path(scratch, "file")
            with io.BufferedWriter(_Raw(part, path)) as file, _compressing(file, path) as shown:
                yield shown
            with as_config_error(path):
                storage.send(part, path)
        return
    target = path.resolve()
    part = _part_of(target)
    try:
        with as_config_error(path):
            raw = _Raw(part, path)
        with io.BufferedWriter(raw) as file:
            with _compressing(file, path) as shown:
                yield shown
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
        with suppress(OSError):  # there is no such folder, or it takes no changes
            part.unlink(missing_ok=True)


def _compressing(file: BinaryIO, path: AnyPath) -> AbstractContextManager[BinaryIO]:
    """The file, or what compresses into it."""
    if path.suffix not in compressed.ENDINGS:
        return nullcontext(file)
    return closing(compressed.compressor(file, path.suffix))


def write(path: AnyPath, content: bytes) -> None:
    """Writes `content` to `path`, all of it or nothing; raises as `writing`."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which appears under `path` when the block ends well, and else not at all; a
    `ConfigError` if there is something already, or it cannot be made."""
    if path.exists():
        raise ConfigError(f"{path} is there already; name a new folder")
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
    """Turns each `OSError` in the block into a `ConfigError`: `path` cannot be written, and why."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def _part_of(path: Path) -> Path:
    """A name beside `path` that nobody else takes: containers that share a disk may share process
    ids too."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}{PART}")


class _Raw(io.FileIO):
    """A new file whose errors name the file that it will be."""

    def __init__(self, part: Path, path: AnyPath):
        super().__init__(part, "xb")
        self._path = path

    def write(self, content: Any, /) -> int:
        with as_config_error(self._path):
            return super().write(content)
