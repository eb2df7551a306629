"""Reads rows from disk in runs, slightly ahead of the batches that use them."""

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from xlj.data.rows.store import RowStore

CACHE_BYTES = 1 << 30
"""The most memory for rows of later batches."""


class Fetcher:
    """Reads the training rows of a store, each about once.

    Args:
      cache_bytes: the most memory for rows of later batches.
      concurrent_reads: how many reads the store serves at the same time.

    Attributes:
      fetched: bytes read from disk so far.
      fetches: number of reads so far; each reads consecutive rows.
    """

    def __init__(self, store: RowStore, cache_bytes: int = CACHE_BYTES, concurrent_reads: int = 1):
        self.fetched = self.fetches = 0
        self._store, self._room = store, cache_bytes
        self._cache: OrderedDict[tuple[str, int], np.ndarray] = OrderedDict()
        self._threads = ThreadPoolExecutor(concurrent_reads) if concurrent_reads > 1 else None

    def prefetch(self, tasks: Sequence[str], rows: np.ndarray, ahead: np.ndarray) -> None:
        """Reads the rows of the next calls of `read`, `concurrent_reads` at a time.

        Does nothing if `concurrent_reads` is 1: reading rows from local disk is fast.

        Args:
          tasks: the task of each row.
          rows, ahead: as in `read`.
        """
        if self._threads is None:
            return
        runs: list[tuple[str, int, int]] = []
        coming: set[tuple[str, int]] = set()
        for task, row, count in zip(tasks, rows.tolist(), ahead.tolist(), strict=True):
            if (task, row) in self._cache or (task, row) in coming:
                continue
            while count > 1 and (task, row + count - 1) in coming:
                count -= 1
            runs.append((task, row, self._missing(task, row, count)))
            coming.update((task, row + i) for i in range(runs[-1][2]))
        fetched = self._threads.map(lambda run: self._store.fetch(*run), runs)
        for (task, row, _), records in zip(runs, fetched, strict=True):
            self._store_in_cache(task, row, records)

    def read(self, task: str, rows: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        """Returns the records of rows of a task (`store.record`), [n].

        Args:
          rows: row numbers, int64 [n].
          ahead: how many consecutive rows from each row on are read soon, int64 [n].
        """
        taken = []
        for row, count in zip(rows.tolist(), ahead.tolist(), strict=True):
            if (task, row) not in self._cache:
                records = self._store.fetch(task, row, self._missing(task, row, count))
                self._store_in_cache(task, row, records)
            record = self._cache.pop((task, row))
            self._room += record.nbytes
            taken.append(record)
        return np.concatenate(taken)

    def _missing(self, task: str, row: int, count: int) -> int:
        """Counts the rows to read: without a part at their end that is already in the cache."""
        while count > 1 and (task, row + count - 1) in self._cache:
            count -= 1
        return count

    def _store_in_cache(self, task: str, row: int, records: np.ndarray) -> None:
        self.fetched += records.nbytes
        self.fetches += 1
        self._room -= records.nbytes
        while self._room < 0 and self._cache:
            self._room += self._cache.popitem(last=False)[1].nbytes
        for i in range(len(records)):
            before = self._cache.pop((task, row + i), None)  # from an earlier epoch, still needed
            self._room += before.nbytes if before is not None else 0
            self._cache[task, row + i] = records[i : i + 1]
