"""Damaged checkpoints: found before a run goes on, and put aside for the one before."""

import itertools

from xlj.checkpoints import reading
from xlj.checkpoints.reading import DamagedError
from xlj.config import ConfigError
from xlj.distributed import hosts
from xlj.io import storage
from xlj.io.atomic import as_config_error
from xlj.io.storage import AnyPath

FOLDER = "damaged"
"""In a workdir: checkpoints that were put aside."""


def put_aside(workdir: AnyPath) -> None:
    """Moves checkpoints that are damaged into `WORKDIR/damaged`, and says so, until the latest is
    whole. The first of all stays, so that a run never begins anew by itself.

    All of the latest is read, and of others the description. Every process of a run calls this; the
    first does it, and the others wait.

    Raises:
      ConfigError: if a folder cannot be moved.
    """
    hosts.told(lambda: _put_aside(workdir))


def _put_aside(workdir: AnyPath) -> None:
    """As `put_aside`, in one process."""
    found, whole = reading.steps(workdir), False
    for before, step in reversed(list(itertools.pairwise(found))):
        folder = workdir / "checkpoints" / str(step)
        try:
            checkpoint = reading.read_meta(folder)
            if not whole:
                reading.verify(checkpoint)
            whole = True
        except DamagedError as error:
            target = _move(folder, workdir / FOLDER)
            goes_on = "" if whole else f"; the run goes on from step {before} or earlier"
            print(f"{error.what}; it is now in {target}{goes_on}", flush=True)


def _move(folder: AnyPath, into: AnyPath) -> AnyPath:
    """Moves a folder to a name that is free."""
    names = itertools.chain([folder.name], (f"{folder.name}.{n}" for n in itertools.count(1)))
    try:
        with as_config_error(into):
            target = next(into / name for name in names if not storage.exists(into / name))
            into.mkdir(exist_ok=True)
            storage.move_folder(folder, target, reading.COMMITTED)
    except ConfigError as error:
        raise ConfigError(f"{error}; {folder} is damaged, move it away by hand") from error
    return target
