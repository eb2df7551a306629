"""Files that are either whole or absent, whenever the machine stops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PART = ".part"
"""Ending of a file that is still being written; a run that was killed may leave some."""


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that appears under `path`, complete and on disk, when the block ends well. A
    link stays one."""
    path = path.resolve()
    part = path.with_name(f"{path.name}.{os.getpid()}{PART}")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write(path: Path, content: bytes) -> None:
    """Writes `content` to `path`, all of it or nothing."""
    with writing(path) as file:
        file.write(content)
