"""A workdir belongs to one run at a time; a finished fine-tuning run leaves its scores there."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from xlj.config import ConfigError
from xlj.config.paths import check_storable, local_path, scheme_of
from xlj.io import json_file, storage
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath, Url, place

LOCK = "lock"
"""The file that keeps other runs out."""
RUN = "run.json"
"""A finished fine-tuning run's scores, and the step that was chosen, in its folder."""


def finished_run(folder: AnyPath) -> Record | None:
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


def resolve(named: str, path: str | AnyPath) -> AnyPath:
    """The place of a workdir or a checkpoint: a path of this machine, or gs://BUCKET/FOLDER.

    Args:
      named: the flag or key that names it, for the error.

    Raises:
      ConfigError: if it is another URL.
    """
    if isinstance(path, Url):
        return path
    scheme = scheme_of(path)
    if scheme == "s3":
        raise ConfigError(
            f"{named}={path}: no checkpoint can be kept in an s3:// bucket, since Orbax takes such "
            "a path for a relative one; name a gs:// bucket or a path of this machine"
        )
    if scheme == "gs":
        check_storable(named, str(path))
        if found := re.search(r"[][*?#]", str(path)):
            raise ConfigError(
                f"{named}={path}: {found[0]} means something else in a URL; leave it out"
            )
        return place(str(path).rstrip("/"))
    return local_path(named, path)


@contextlib.contextmanager
def only_run(workdir: AnyPath) -> Iterator[None]:
    """Keeps other runs out of a workdir, which is made if need be; the lock ends with the process,
    in a bucket a minute after one that was killed.

    Raises:
      ConfigError: if it cannot be made or written to, or another run is in it.
    """
    lock = storage.lock(workdir, LOCK, wait=False)
    try:
        is_first = not (workdir / LOCK).exists()
        workdir.mkdir(parents=True, exist_ok=True)
        lock.__enter__()
    except BlockingIOError:
        raise ConfigError(
            f"another run is in --workdir={workdir}; wait for it, stop it, or take another"
        ) from None
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(
            f"--workdir={workdir}: no run can be kept there ({reason}); name a folder that can be "
            "written to"
        ) from error
    with contextlib.ExitStack() as stack:
        stack.push(lock)
        try:
            yield
        except ConfigError:
            # A run that is refused before any work leaves nothing.
            if is_first and isinstance(workdir, Path):
                (workdir / LOCK).unlink()
                with contextlib.suppress(OSError):
                    workdir.rmdir()
            raise
