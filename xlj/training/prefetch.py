"""Batches on the devices ahead of time, and how long the run had to wait for them."""

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from xlj.data.rows.batches import Batches
from xlj.objectives.objective import Rows
from xlj.training.partitioning import ROWS

_AHEAD = 3


class Prefetch:
    """Reads the batches of steps [start, stop) in a thread, a few ahead.

    Every process reads only the rows of its own devices, slices of the same global batch.
    """

    def __init__(self, batches: Batches, mesh: Mesh, start: int, stop: int):
        self.seconds_waited = 0.0
        self._batches, self._sharding = batches, NamedSharding(mesh, ROWS)
        self._queue: queue.Queue[Any] = queue.Queue(_AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, args=(start, stop), daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[tuple[dict[str, Rows], int]]:
        """Yields the batch of each step, and how many tokens of this process's rows are text.

        Raises: what went wrong in reading.
        """
        while True:
            begin = time.perf_counter()
            item = self._queue.get()
            self.seconds_waited += time.perf_counter() - begin
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Stops reading, once the batch that is being read is there."""
        self._closed.set()
        self._thread.join()

    def _fill(self, start: int, stop: int) -> None:
        try:
            for step in range(start, stop):
                if self._closed.is_set():
                    return
                self._put(self._batch(step))
            self._put(None)
        except BaseException as error:  # it is raised where the batch was wanted
            self._put(error)

    def _put(self, item: Any) -> None:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=0.2)
                return
            except queue.Full:
                continue

    def _batch(self, step: int) -> tuple[dict[str, Rows], int]:
        batch: dict[str, Rows] = {}
        tokens = 0
        for name, shape in self._batches.shapes(step).items():
            if self._closed.is_set():
                break
            local: dict[int, tuple[np.ndarray, np.ndarray]] = {}
            for index in self._sharding.addressable_devices_indices_map(shape).values():
                begin, end, _ = (index or (slice(None),))[0].indices(shape[0])
                if begin not in local:
                    local[begin] = self._batches.read(name, step, np.arange(begin, end))
                    tokens += self._batches.tokens(name, local[begin][0])
            batch[name] = Rows(
                tokens=self._sharded(shape, {begin: part[0] for begin, part in local.items()}),
                languages=self._sharded((shape[0], 2), {b: part[1] for b, part in local.items()}),
            )
        return batch, tokens

    def _sharded(self, shape: tuple[int, int], local: Mapping[int, np.ndarray]) -> jax.Array:
        """A global array of this process's parts; `local` maps each one's first row to it."""

        def part(index: Any) -> np.ndarray:
            return local[index[0].indices(shape[0])[0]]

        return jax.make_array_from_callback(shape, self._sharding, part)
