"""How fast the devices of each host are, and how long each waits for rows, so that a slow one is
found: the steps of all take as long as those of the slowest.
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
"""In the workdir of a run of several processes: a line whenever training is measured."""

_PRODUCTS = 16
_SIZES = {"cpu": 256}
_SIZE = 4096
_SLOW = 1.25  # times the median


class HostSpeeds:
    """Measures each process's devices, alone: matrix products that need no other host. Nothing is
    measured where there is one process."""

    def __init__(self, files: GrowingFiles):
        self._files = files
        self._names = hosts.names() if jax.process_count() > 1 else []

    def measures(self, step: int, waiting_share: float) -> tuple[dict[str, float], str]:
        """Who is slowest and who waits most, as metrics, and a word if one is slow; process 0
        writes what was measured of all. All processes must call this.

        Args:
          step: how many are done.
          waiting_share: of this process's time, for rows.
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
        said = f"process {slowest} ({self._names[slowest]}) is {factor[slowest]:.1f} x slower"
        return {
            "time/slowest_process": slowest,
            "time/slowest_process_factor": float(factor[slowest]),
            "time/most_waiting_process": waiting,
            "time/most_waiting_process_share": float(waits[waiting]),
        }, said if factor[slowest] > _SLOW else ""


def _probe_seconds() -> float:
    """Seconds of the same products on each of this process's devices, of the slowest: the best of
    two times, since the first may compile."""
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
    def product(_: Any, made: jax.Array) -> jax.Array:
        return jnp.matmul(made, matrix)

    return jax.lax.fori_loop(0, _PRODUCTS, product, matrix)
