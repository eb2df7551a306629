"""Locks a workdir for one run at a time, and reads the scores of a finished fine-tuning run."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from xlj.config import ConfigError
from xlj.config.paths import check_storable, local_path, scheme_of
from xlj.io import json_file, storage
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath, Url, to_path

LOCK = "lock"
"""The file that locks a workdir."""
RUN = "run.json"
"""The file with a finished fine-tuning run's scores and its chosen step."""


def finished_run(folder: AnyPath) -> Record | None:
    """Returns the content of a folder's `RUN` (`finetuning.running.TaskRun`), or None.

    Raises:
      ConfigError: if it is damaged.
    """
    file = folder / RUN
    if not file.is_file():
        return None
    try:
        content = json_file.read(file, not_finite=True)
        scores = {key: content[key] for key in ("languages", "seed", "dev", "test")}
        return scores | {"step": int(content["step"])}
    except (ValueError, KeyError, TypeError, OverflowError):
        raise ConfigError(
            f"{file} is damaged; delete it and run the same command again to rebuild it"
        ) from None


def resolve(named: str, path: str | AnyPath) -> AnyPath:
    """Returns the path of a workdir or a checkpoint: a local path, or gs://BUCKET/FOLDER.

    Args:
      named: the flag or key that names it, for errors.

    Raises:
      ConfigError: if it is another URL.
    """
    if isinstance(path, Url):
        return path
    scheme = scheme_of(path)
    if scheme == "s3":
        raise ConfigError(
            f"{named}={path}: s3:// buckets cannot store checkpoints, because Orbax treats the URL "
            "as a relative path; use a gs:// bucket or a local path"
        )
    if scheme == "gs":
        check_storable(named, str(path))
        if special := re.search(r"[][*?#]", str(path)):
            raise ConfigError(
                f"{named}={path}: {special[0]} has another meaning in a URL; remove it"
            )
        return to_path(str(path).rstrip("/"))
    return local_path(named, path)


@contextlib.contextmanager
def only_run(workdir: AnyPath, flag: str = "--workdir") -> Iterator[None]:
    """Locks a workdir during the block, and creates it if it does not exist.

    The lock ends with the process; in a bucket up to a minute later, if the process was killed.

    Args:
      flag: the flag that named the workdir, for errors.

    Raises:
      ConfigError: if the workdir cannot be created or written, or another run is using it.
    """
    lock = storage.lock(workdir, LOCK, wait=False)
    try:
        is_first = not (workdir / LOCK).exists()
        workdir.mkdir(parents=True, exist_ok=True)
        lock.__enter__()
    except BlockingIOError:
        raise ConfigError(
            f"another run is using {flag}={workdir}; wait for it, stop it, or use another folder"
        ) from None
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(
            f"{flag}={workdir} cannot be written ({reason}); name a writable folder"
        ) from error
    with contextlib.ExitStack() as stack:
        stack.push(lock)
        try:
            yield
        except ConfigError:
            # A run that is refused before any work leaves no files.
            if is_first and isinstance(workdir, Path):
                (workdir / LOCK).unlink()
                with contextlib.suppress(OSError):
                    workdir.rmdir()
            raise
