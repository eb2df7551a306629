"""Coordination of the processes of a run: joining, broadcasts, shared storage, and the speed of
each host.

All hosts wait for the slowest host in every step, so a slow host should be replaced.
"""

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
import jax.numpy as jnp
import numpy as np

from xlj.config import ConfigError
from xlj.io import atomic
from xlj.io.atomic import GrowingFiles
from xlj.io.storage import AnyPath

T = TypeVar("T")

WAIT = 30.0
"""Number of seconds within which all hosts must see a file that one host writes. NFS caches
listings of folders, so files do not appear immediately."""

_JOINING = 300  # number of seconds within which all processes must join
_NAME = 64  # number of bytes of a host's name that are sent to other hosts


def join(coordinator: str | None, processes: int | None, process: int | None) -> tuple[int, int]:
    """Joins the other processes of a run.

    Under Slurm and Open MPI, and on TPU pods, JAX detects the processes, and all arguments may be
    None.

    Args:
      coordinator: HOST:PORT of process 0.
      processes: number of processes.
      process: number of this process, zero-based.

    Returns:
      The number of this process, and the number of processes.

    Raises:
      ConfigError: if JAX cannot detect the processes, or if they do not join within `_JOINING`
        seconds.
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
            "the same --coordinator and --processes, and that its host can reach the coordinator"
        ) from error
    return jax.process_index(), jax.process_count()


def broadcast(decide: Callable[[], T]) -> T:
    """Calls `decide` in process 0 and returns its result, sent as JSON, in every process.

    All processes must call this. If `decide` raises a `ConfigError`, all processes raise it.
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
    # JAX compiles a program for each size. Rounding up to multiples of 1024 bytes gives few sizes.
    buffer = np.zeros(-(-size // 1024) * 1024, np.uint8)
    buffer[: len(content)] = np.frombuffer(content, np.uint8)
    message: dict[str, Any] = json.loads(
        np.asarray(multihost_utils.broadcast_one_to_all(buffer)).tobytes()[:size]
    )
    if "error" in message:
        raise ConfigError(message["error"])
    value: T = message["value"]
    return value


def all_gather(values: np.ndarray) -> np.ndarray:
    """Returns the values of all processes, [processes, ...]. All processes must call this."""
    if jax.process_count() == 1:
        return values[None]
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(values))


def gather_names() -> list[str]:
    """Returns the host name of each process. All processes must call this."""
    name = np.frombuffer(socket.gethostname().encode()[:_NAME].ljust(_NAME, b"\0"), np.uint8)
    return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in all_gather(name)]


def check_shared(folder: AnyPath, name: str) -> None:
    """Checks that all hosts share a folder. All processes must call this.

    Process 0 writes a file into the folder, and all processes look for the file.

    Args:
      name: the flag or config key of the folder, for the message.

    Raises:
      ConfigError: in all processes, if a process does not see the file. The message names up to
        eight such processes.
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
        hosts = gather_names()
        blind = ", ".join(f"{k} (host {hosts[k]})" for k in np.flatnonzero(~all_see)[:8].tolist())
        raise ConfigError(
            f"{name}={folder}: process {blind} does not see a file that process 0 (host "
            f"{hosts[0]}) wrote into this folder; name a folder on storage that all hosts share, "
            "at the same path"
        )


def _write_mark(folder: AnyPath, name: str) -> str:
    """Writes a file of a new name into a folder, and returns the name of the file."""
    mark = f".shared-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write(folder / mark, b"")
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(
            f"{name}={folder}: this folder is not writable ({reason}); choose another folder"
        ) from error
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error
    return mark


def _appears(path: AnyPath) -> bool:
    """Returns whether a file exists, or appears within `WAIT` seconds.

    Listing the folder makes NFS refresh its cache.
    """
    deadline = time.monotonic() + WAIT
    while True:
        with contextlib.suppress(OSError):
            if path.exists():
                return True
            if isinstance(path, Path):
                os.listdir(path.parent)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)


def wait_for(path: AnyPath) -> None:
    """Waits until this host sees a file that process 0 sees.

    Raises:
      ConfigError: if the file does not appear within `WAIT` seconds; the message names the host.
    """
    if jax.process_count() > 1 and not _appears(path):
        raise ConfigError(
            f"process {jax.process_index()} (host {socket.gethostname()}) does not see {path}, "
            "which process 0 sees; choose a folder on storage that all hosts share, at the same "
            "path"
        )


FILE = "hosts.jsonl"
"""A file in the workdir of a run with several processes. It has one JSON object per line, for each
line of training metrics."""

_PRODUCTS = 16  # number of matrix products of a measurement
_SIZES = {"cpu": 256}  # rows and columns of the matrices, by platform
_SIZE = 4096  # rows and columns of the matrices on all other platforms
_SLOW = 1.25  # a process is slow if it needs this many times the median of all processes


class HostSpeeds:
    """Measures the devices of each process with matrix products that need no other host.

    In a run with a single process, nothing is measured.

    Args:
      files: of the workdir.
    """

    def __init__(self, files: GrowingFiles):
        self._files = files
        self._names = gather_names() if jax.process_count() > 1 else []

    def measures(self, step: int, waiting_share: float) -> tuple[dict[str, float], str]:
        """Measures all hosts; process 0 writes the results to `FILE`. All processes must call this.

        Args:
          step: number of finished steps.
          waiting_share: share of the time that this process waited for rows.

        Returns:
          (metrics, warning). The metrics describe the slowest process, and the process that waited
          longest for rows. The warning is a text if a process is slow, else it is empty.
        """
        if not self._names:
            return {}, ""
        probe, waits = all_gather(np.array([_probe_seconds(), waiting_share], np.float32)).T
        factor = probe / max(float(np.median(probe)), 1e-9)
        slowest, waiting = int(factor.argmax()), int(waits.argmax())
        if jax.process_index() == 0:
            line = {
                "step": step,
                "hosts": self._names,
                "probe_seconds": [round(x, 6) for x in probe.tolist()],
                "waiting_share": [round(x, 4) for x in waits.tolist()],
            }
            with atomic.as_config_error(self._files.folder / FILE):
                with self._files.path(FILE).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
        name = self._names[slowest]
        warning = f"process {slowest} ({name}) needs {factor[slowest]:.1f} x the median time"
        return {
            "time/slowest_process": slowest,
            "time/slowest_process_factor": float(factor[slowest]),
            "time/most_waiting_process": waiting,
            "time/most_waiting_process_share": float(waits[waiting]),
        }, warning if factor[slowest] > _SLOW else ""


def _probe_seconds() -> float:
    """Returns the seconds that this process's slowest device needs for `_PRODUCTS` products.

    The result is the shorter of two times, since the first one may include compilation.
    """
    devices = jax.local_devices()
    size = _SIZES.get(devices[0].platform, _SIZE)
    matrices = [jax.device_put(np.eye(size, dtype=jnp.bfloat16), device) for device in devices]
    jax.block_until_ready(matrices)
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        jax.block_until_ready([_products(matrix) for matrix in matrices])
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


@jax.jit
def _products(matrix: jax.Array) -> Any:
    """Multiplies a matrix [n, n] with itself `_PRODUCTS` times."""

    def product(_: Any, power: jax.Array) -> jax.Array:
        return jnp.matmul(power, matrix)

    return jax.lax.fori_loop(0, _PRODUCTS, product, matrix)
