"""Reads batches ahead of the steps and places them on the devices."""

import collections
import itertools
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from xlj.data.rows.batches import Batches
from xlj.objectives.objective import Rows
from xlj.sharding.devices import ROWS

_AHEAD = 3  # number of batches that are read ahead


class Prefetch:
    """Reads the batches of steps [start, stop) in a thread, a few steps ahead.

    Each process reads only the rows of its own devices, which are slices of the global batch.

    Attributes:
      seconds_waited: the seconds that the run has waited for batches so far.
    """

    def __init__(self, batches: Batches, mesh: Mesh, start: int, stop: int):
        self.seconds_waited = 0.0
        self._batches, self._sharding = batches, NamedSharding(mesh, ROWS)
        self._reader = ThreadPoolExecutor(1)
        self._steps = iter(range(start, stop))
        self._ahead = collections.deque(map(self._read, itertools.islice(self._steps, _AHEAD)))

    def __iter__(self) -> Iterator[tuple[dict[str, Rows], int]]:
        """Yields the batch of each step, and the number of tokens in this process's rows.

        Tokens count without padding. Errors of the reading thread are raised here.
        """
        while self._ahead:
            begin = time.perf_counter()
            batch = self._ahead.popleft().result()
            self.seconds_waited += time.perf_counter() - begin
            self._ahead.extend(map(self._read, itertools.islice(self._steps, 1)))
            yield batch

    def close(self) -> None:
        """Stops reading, after the thread has finished its current batch."""
        self._reader.shutdown(cancel_futures=True)

    def _read(self, step: int) -> Future[tuple[dict[str, Rows], int]]:
        return self._reader.submit(self._batch, step)

    def _batch(self, step: int) -> tuple[dict[str, Rows], int]:
        batch: dict[str, Rows] = {}
        tokens = 0
        for name, shape in self._batches.shapes(step).items():
            local: dict[int, Mapping[str, np.ndarray]] = {}
            for index in self._sharding.addressable_devices_indices_map(shape).values():
                begin, end, _ = (index or (slice(None),))[0].indices(shape[0])
                if begin not in local:
                    local[begin] = self._batches.read(name, step, np.arange(begin, end))
                    tokens += self._batches.tokens(name, local[begin])
            batch[name] = {
                field.name: self._sharded(
                    (shape[0], *field.shape),
                    {begin: part[field.name] for begin, part in local.items()},
                )
                for field in self._batches.fields(name, step)
            }
        return batch, tokens

    def _sharded(self, shape: tuple[int, ...], local: Mapping[int, np.ndarray]) -> jax.Array:
        """Returns a global array, of which this process has some parts.

        Args:
          shape: of the global array.
          local: the parts of this process's devices, by the number of their first row.
        """

        def part(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None, "arrays of rows are sharded along their first axis"
            return local[index[0].indices(shape[0])[0]]

        return jax.make_array_from_callback(shape, self._sharding, part)
