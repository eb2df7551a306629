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
"""The file in which a finished fine-tuning run stores its scores and the chosen step."""


def finished_run(folder: AnyPath) -> Record | None:
    """Reads the results of a finished fine-tuning run (`finetuning.task_runs.TaskRun`).

    Returns:
      The content of the file `RUN` in a folder, or None if there is no such file.

    Raises:
      ConfigError: if the file is damaged.
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
            f"{file} is damaged; delete the file and rerun the command to write it again"
        ) from None


def resolve(named: str, path: str | AnyPath) -> AnyPath:
    """Returns the path of a workdir or a checkpoint: a local path, or gs://BUCKET/FOLDER.

    Args:
      named: the flag or key that set the path, for errors.

    Raises:
      ConfigError: if the path is another kind of URL.
    """
    if isinstance(path, Url):
        return path
    scheme = scheme_of(path)
    if scheme == "s3":
        raise ConfigError(
            f"{named}={path}: Orbax cannot store checkpoints in s3:// buckets; use a gs:// bucket "
            "or a local path"
        )
    if scheme == "gs":
        check_storable(named, str(path))
        if special := re.search(r"[][*?#]", str(path)):
            raise ConfigError(
                f"{named}={path}: the character {special[0]} has a special meaning in a URL; "
                "remove it"
            )
        return to_path(str(path).rstrip("/"))
    return local_path(named, path)


@contextlib.contextmanager
def only_run(workdir: AnyPath, flag: str = "--workdir") -> Iterator[None]:
    """Context manager that locks a workdir, and creates it if it does not exist.

    If the process is killed, the lock on a local workdir ends with the process. In a bucket it ends
    up to a minute later.

    Args:
      flag: the flag that set the workdir, for errors.

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
            f"{flag}={workdir} cannot be written ({reason}); set it to a writable folder"
        ) from error
    with contextlib.ExitStack() as stack:
        stack.push(lock)
        try:
            yield
        except ConfigError:
            # A run that stops with a config error before any work must leave no files.
            if is_first and isinstance(workdir, Path):
                (workdir / LOCK).unlink()
                with contextlib.suppress(OSError):
                    workdir.rmdir()
            raise
