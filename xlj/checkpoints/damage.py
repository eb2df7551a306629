"""Moves damaged checkpoints into another folder before a run resumes."""

import itertools

from xlj.checkpoints import reading
from xlj.checkpoints.reading import DamagedError
from xlj.config import ConfigError
from xlj.distributed import hosts
from xlj.io import storage
from xlj.io.atomic import as_config_error
from xlj.io.storage import AnyPath

FOLDER = "damaged"
"""The folder in a workdir to which damaged checkpoints are moved."""


def move_damaged(workdir: AnyPath) -> None:
    """Moves damaged checkpoints into `WORKDIR/damaged`, and prints a message for each.

    It begins with the latest checkpoint, and reads whole checkpoints until one is intact. Of all
    earlier checkpoints, it reads only the descriptions. The first checkpoint of a workdir is never
    moved, so that a run does not silently start from the beginning. Every process of a run must
    call this function; process 0 does the work, and all other processes wait.

    Raises:
      ConfigError: if a folder cannot be moved.
    """
    hosts.broadcast(lambda: _move_damaged(workdir))


def _move_damaged(workdir: AnyPath) -> None:
    """Implements `move_damaged` in one process."""
    steps, found_intact = reading.steps(workdir), False
    for before, step in reversed(list(itertools.pairwise(steps))):
        folder = workdir / "checkpoints" / str(step)
        try:
            checkpoint = reading.read_meta(folder)
            if not found_intact:
                reading.verify(checkpoint)
            found_intact = True
        except DamagedError as error:
            target = _move(folder, workdir / FOLDER)
            resume = "" if found_intact else f"; the run resumes from step {before} or earlier"
            print(f"{error.what}; it was moved to {target}{resume}", flush=True)


def _move(folder: AnyPath, into: AnyPath) -> AnyPath:
    """Moves a folder into another folder, under an unused name.

    Returns:
      The new path.
    """
    names = itertools.chain([folder.name], (f"{folder.name}.{n}" for n in itertools.count(1)))
    try:
        with as_config_error(into):
            target = next(into / name for name in names if not storage.exists(into / name))
            into.mkdir(exist_ok=True)
            storage.move_folder(folder, target, reading.COMMITTED)
    except ConfigError as error:
        raise ConfigError(
            f"{error}; {folder} is damaged and could not be moved; move it to another folder"
        ) from error
    return target
