"""A workdir belongs to one run at a time; a finished fine-tuning run leaves its scores there."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from xlj.config import ConfigError
from xlj.io import json_file
from xlj.io.json_file import Record

RUN = "run.json"
"""A finished fine-tuning run's scores, and the step that was chosen, in its folder."""


def finished_run(folder: Path) -> Record | None:
    """The content of a folder's `RUN` (`finetuning.running.Run`), if it has one; raises a
    `ConfigError` if it is damaged."""
    file = folder / RUN
    if not file.is_file():
        return None
    try:
        content = json_file.read(file, not_finite=True)
        found = {key: content[key] for key in ("languages", "seed", "dev", "test")}
        return found | {"step": int(content["step"])}
    except (ValueError, KeyError, TypeError, OverflowError):
        raise ConfigError(
            f"{file} is damaged; without it the same command as before makes it again"
        ) from None


@contextlib.contextmanager
def only_run(workdir: Path) -> Iterator[None]:
    """Keeps other runs out of a workdir, which is made if need be; the lock ends with the process.

    Raises:
      ConfigError: if it cannot be made or written to, or another run is in it.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        lock = (workdir / "lock").open("w")
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(
            f"--workdir={workdir}: no run can be kept there ({reason}); name a folder that can be "
            "written to"
        ) from error
    with lock as file:
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
