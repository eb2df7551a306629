"""Fetches rows from disk in runs, a little ahead of the batches that use them."""

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from xlj.data.rows.store import RowStore

CACHE_BYTES = 1 << 30
"""The most that is held for batches to come."""


class Fetcher:
    """Reads the training rows of a store, each about once.

    Args:
      at_once: how many questions a store may be asked at the same time.

    Attributes:
      fetched: bytes read from disk so far.
      fetches: how often, each time rows that follow each other.
    """

    def __init__(self, store: RowStore, cache_bytes: int = CACHE_BYTES, at_once: int = 1):
        self.fetched = self.fetches = 0
        self._store, self._room = store, cache_bytes
        self._held: OrderedDict[tuple[str, int], np.ndarray] = OrderedDict()
        self._threads = ThreadPoolExecutor(at_once) if at_once > 1 else None

    def bring(self, tasks: Sequence[str], rows: np.ndarray, ahead: np.ndarray) -> None:
        """Fetches what `read` will be asked for, `at_once` at a time; nothing if that is 1, since
        rows on disk are there at once. The task of each row is named, the rest as in `read`."""
        if self._threads is None:
            return
        runs: list[tuple[str, int, int]] = []
        coming: set[tuple[str, int]] = set()
        for task, row, count in zip(tasks, rows.tolist(), ahead.tolist(), strict=True):
            if (task, row) in self._held or (task, row) in coming:
                continue
            while count > 1 and (task, row + count - 1) in coming:
                count -= 1
            runs.append((task, row, self._missing(task, row, count)))
            coming.update((task, row + i) for i in range(runs[-1][2]))
        found = self._threads.map(lambda run: self._store.fetch(*run), runs)
        for (task, row, _), records in zip(runs, found, strict=True):
            self._hold(task, row, records)

    def read(self, task: str, rows: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        """Records of a task (`store.record`), [n].

        Args:
          rows: their numbers, int64 [n].
          ahead: how many rows from each on, with it, will be read soon, int64 [n].
        """
        taken = []
        for row, count in zip(rows.tolist(), ahead.tolist(), strict=True):
            if (task, row) not in self._held:
                records = self._store.fetch(task, row, self._missing(task, row, count))
                self._hold(task, row, records)
            record = self._held.pop((task, row))
            self._room += record.nbytes
            taken.append(record)
        return np.concatenate(taken)

    def _missing(self, task: str, row: int, count: int) -> int:
        """How many of some rows are left without a part at their end that was fetched before."""
        while count > 1 and (task, row + count - 1) in self._held:
            count -= 1
        return count

    def _hold(self, task: str, row: int, records: np.ndarray) -> None:
        self.fetched += records.nbytes
        self.fetches += 1
        self._room -= records.nbytes
        while self._room < 0 and self._held:
            self._room += self._held.popitem(last=False)[1].nbytes
        for i in range(len(records)):
            before = self._held.pop((task, row + i), None)  # of an epoch that still needs it
            self._room += before.nbytes if before is not None else 0
            self._held[task, row + i] = records[i : i + 1]
