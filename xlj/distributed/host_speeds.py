"""Measures the speed of each host's devices, and how long each host waits for rows.

All hosts wait for the slowest host in every step, so a slow host should be replaced.
"""

import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlj.distributed import hosts
from xlj.io import atomic
from xlj.io.growing import GrowingFiles

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
        self._names = hosts.gather_names() if jax.process_count() > 1 else []

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
        probe, waits = hosts.all_gather(np.array([_probe_seconds(), waiting_share], np.float32)).T
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
