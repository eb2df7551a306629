"""A workdir belongs to one run at a time."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from xlj.config import ConfigError


@contextlib.contextmanager
def only_run(workdir: Path) -> Iterator[None]:
    """Keeps other runs out of a workdir, which is made if need be; the lock ends with the process.

    Raises:
      ConfigError: if another run is in it.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    with (workdir / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another run is in --workdir={workdir}; wait for it, stop it, or take another"
            ) from None
        try:
            yield
        except ConfigError:
            if {entry.name for entry in workdir.iterdir()} == {"lock"}:  # refused before any work
                (workdir / "lock").unlink()
                workdir.rmdir()
            raise
