"""What the processes of a run agree on: process 0 decides, and tells the others."""

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from xlj.config import ConfigError
from xlj.io import atomic
from xlj.io.storage import AnyPath

T = TypeVar("T")

WAIT = 30.0
"""Seconds in which what one host writes must be seen by the others: NFS keeps what it listed."""

_JOINING = 300  # seconds in which all must have come
_NAME = 64  # bytes of a host's name that others see


def join(coordinator: str | None, processes: int | None, process: int | None) -> tuple[int, int]:
    """Joins the other processes of a run; returns which this is, and how many there are.

    Args:
      coordinator: HOST:PORT of process 0. It and the others may be None where JAX finds them by
        itself: Slurm, a TPU pod, Open MPI.

    Raises:
      ConfigError: if they are not found, or do not come within `_JOINING` seconds.
    """
    given = (coordinator, processes, process)
    try:
        jax.distributed.initialize(
            coordinator_address=coordinator,
            num_processes=processes,
            process_id=process,
            initialization_timeout=_JOINING,
            cluster_detection_method=None if None in given else "deactivate",
        )
    except ValueError as error:
        raise ConfigError(
            f"--distributed: nothing here tells of the other processes ({error}); give "
            "--coordinator=HOST:PORT (of process 0), --processes=N and --process=0 to N-1"
        ) from error
    except RuntimeError as error:
        raise ConfigError(
            f"--distributed: not all processes came together within {_JOINING} s "
            f"({str(error).partition(chr(10))[0][:200]}); is each of them started, with the same "
            "--coordinator and --processes, and can its host reach that address?"
        ) from error
    return jax.process_index(), jax.process_count()


def broadcast(decide: Callable[[], T]) -> T:
    """What `decide` returns in process 0, through JSON, in every process.

    All must call this. A `ConfigError` that it raises there is raised everywhere.
    """
    if jax.process_count() == 1:
        return decide()
    from jax.experimental import multihost_utils  # late: who reads a model needs none of it

    content = b""
    if jax.process_index() == 0:
        try:
            content = json.dumps({"value": decide()}).encode()
        except ConfigError as error:
            content = json.dumps({"error": str(error)}).encode()
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
    buffer = np.zeros(-(-size // 1024) * 1024, np.uint8)  # few shapes, each compiled once
    buffer[: len(content)] = np.frombuffer(content, np.uint8)
    found: dict[str, Any] = json.loads(
        np.asarray(multihost_utils.broadcast_one_to_all(buffer)).tobytes()[:size]
    )
    if "error" in found:
        raise ConfigError(found["error"])
    value: T = found["value"]
    return value


def all_gather(values: np.ndarray) -> np.ndarray:
    """The values of every process, [processes, ...], in all of them. All must call this."""
    if jax.process_count() == 1:
        return values[None]
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(values))


def names() -> list[str]:
    """The host of each process. All must call this."""
    name = np.frombuffer(socket.gethostname().encode()[:_NAME].ljust(_NAME, b"\0"), np.uint8)
    return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in all_gather(name)]


def check_shared(folder: AnyPath, named: str) -> None:
    """Refuses a folder that is not the same on every host. All must call this.

    Args:
      named: the flag or key that names it, for the error.

    Raises:
      ConfigError: in all processes, with those that do not see what process 0 wrote there.
    """
    if jax.process_count() == 1:
        return
    mark = folder / broadcast(lambda: _marked(folder, named))
    try:
        all_see = all_gather(np.array([_appears(mark)]))[:, 0]
    finally:
        if jax.process_index() == 0:
            with contextlib.suppress(OSError):
                mark.unlink(missing_ok=True)
    if not all_see.all():
        hosts = names()
        blind = ", ".join(f"{k} (host {hosts[k]})" for k in np.flatnonzero(~all_see)[:8].tolist())
        raise ConfigError(
            f"{named}={folder}: process {blind} does not see what process 0 (host {hosts[0]}) "
            "writes there; name a folder on storage that all hosts share, at the same path"
        )


def _marked(folder: AnyPath, named: str) -> str:
    mark = f".shared-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write(folder / mark, b"")
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{named}={folder}: cannot write there ({reason})") from error
    except ConfigError as error:
        raise ConfigError(f"{named}: {error}") from error
    return mark


def _appears(path: AnyPath) -> bool:
    """Whether a file is there, or comes while listings of the folder are renewed."""
    latest = time.monotonic() + WAIT
    while True:
        with contextlib.suppress(OSError):
            if path.exists():
                return True
            if isinstance(path, Path):
                os.listdir(path.parent)
        if time.monotonic() > latest:
            return False
        time.sleep(0.2)


def wait_for(path: AnyPath) -> None:
    """Waits until this host sees what process 0 has seen; a `ConfigError` that names the host if it
    does not come."""
    if jax.process_count() > 1 and not _appears(path):
        raise ConfigError(
            f"process {jax.process_index()} (host {socket.gethostname()}) does not see {path}, "
            "which process 0 does; all hosts must share that storage, at the same path"
        )
