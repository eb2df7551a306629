"""Coordination of the processes of a run: joining, broadcasts, and shared storage."""

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
"""Seconds in which all hosts must see what one host writes. NFS caches listings of folders."""

_JOINING = 300  # seconds in which all processes must have joined
_NAME = 64  # bytes of a host's name that are sent to other hosts


def join(coordinator: str | None, processes: int | None, process: int | None) -> tuple[int, int]:
    """Joins the other processes of a run.

    Args:
      coordinator: HOST:PORT of process 0. All arguments may be None where JAX detects the
        processes: under Slurm and Open MPI, and on TPU pods.

    Returns:
      The number of this process, and the number of processes.

    Raises:
      ConfigError: if the processes are not found, or do not join within `_JOINING` seconds.
    """
    arguments = (coordinator, processes, process)
    try:
        jax.distributed.initialize(
            coordinator_address=coordinator,
            num_processes=processes,
            process_id=process,
            initialization_timeout=_JOINING,
            cluster_detection_method=None if None in arguments else "deactivate",
        )
    except ValueError as error:
        raise ConfigError(
            f"--distributed: the other processes cannot be detected ({error}); set "
            "--coordinator=HOST:PORT (of process 0), --processes=N and --process=0 to N-1"
        ) from error
    except RuntimeError as error:
        raise ConfigError(
            f"--distributed: not all processes joined within {_JOINING} s "
            f"({str(error).partition(chr(10))[0][:200]}); check that each process is started with "
            "the same --coordinator and --processes, and that its host can reach that address"
        ) from error
    return jax.process_index(), jax.process_count()


def broadcast(decide: Callable[[], T]) -> T:
    """Calls `decide` in process 0 and returns its result, sent as JSON, in every process.

    All processes must call this. A `ConfigError` of `decide` is raised in all of them.
    """
    if jax.process_count() == 1:
        return decide()
    from jax.experimental import multihost_utils  # late, since loading a model does not need it

    content = b""
    if jax.process_index() == 0:
        try:
            content = json.dumps({"value": decide()}).encode()
        except ConfigError as error:
            content = json.dumps({"error": str(error)}).encode()
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
    buffer = np.zeros(-(-size // 1024) * 1024, np.uint8)  # few shapes, each compiled once
    buffer[: len(content)] = np.frombuffer(content, np.uint8)
    message: dict[str, Any] = json.loads(
        np.asarray(multihost_utils.broadcast_one_to_all(buffer)).tobytes()[:size]
    )
    if "error" in message:
        raise ConfigError(message["error"])
    value: T = message["value"]
    return value


def all_gather(values: np.ndarray) -> np.ndarray:
    """Returns the values of every process, [processes, ...]. All processes must call this."""
    if jax.process_count() == 1:
        return values[None]
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(values))


def names() -> list[str]:
    """Returns the host name of each process. All processes must call this."""
    name = np.frombuffer(socket.gethostname().encode()[:_NAME].ljust(_NAME, b"\0"), np.uint8)
    return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in all_gather(name)]


def check_shared(folder: AnyPath, name: str) -> None:
    """Refuses a folder that is not shared by all hosts. All processes must call this.

    Args:
      name: the flag or key of the folder, for the error.

    Raises:
      ConfigError: in all processes; names those that do not see a file of process 0 there.
    """
    if jax.process_count() == 1:
        return
    mark = folder / broadcast(lambda: _write_mark(folder, name))
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
            f"{name}={folder}: process {blind} does not see what process 0 (host {hosts[0]}) "
            "writes there; name a folder on storage that all hosts share, at the same path"
        )


def _write_mark(folder: AnyPath, name: str) -> str:
    mark = f".shared-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write(folder / mark, b"")
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{name}={folder}: this folder is not writable ({reason})") from error
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error
    return mark


def _appears(path: AnyPath) -> bool:
    """Whether a file exists, or appears within `WAIT` seconds while the folder is listed again."""
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
    """Waits until this host sees a file that process 0 sees; raises a `ConfigError` that names the
    host if it does not appear."""
    if jax.process_count() > 1 and not _appears(path):
        raise ConfigError(
            f"process {jax.process_index()} (host {socket.gethostname()}) does not see {path}, "
            "which process 0 does; all hosts must share that storage, at the same path"
        )
