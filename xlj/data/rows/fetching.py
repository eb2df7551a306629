"""Reads ranges of consecutive rows from storage, ahead of the batches that use them."""

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from xlj.data.rows.store import RowStore

CACHE_BYTES = 1 << 30
"""Maximum memory for rows of later batches, in bytes."""


class Fetcher:
    """Reads training rows of a store, and caches rows that later batches need.

    Most rows are read from storage once per epoch.

    Args:
      store: the row store.
      cache_bytes: maximum memory for rows of later batches, in bytes.
      concurrent_reads: number of reads at the same time.

    Attributes:
      fetched: number of bytes read from storage so far.
      fetches: number of reads so far; each read returns consecutive rows.
    """

    def __init__(self, store: RowStore, cache_bytes: int = CACHE_BYTES, concurrent_reads: int = 1):
        self.fetched = self.fetches = 0
        self._store, self._free_bytes = store, cache_bytes
        self._cache: OrderedDict[tuple[str, int], np.ndarray] = OrderedDict()
        self._threads = ThreadPoolExecutor(concurrent_reads) if concurrent_reads > 1 else None

    def prefetch(self, tasks: Sequence[str], rows: np.ndarray, ahead: np.ndarray) -> None:
        """Reads the rows of the next calls of `read` into the cache, with concurrent reads.

        Does nothing if `concurrent_reads` is 1, because reading rows from a local disk is fast.

        Args:
          tasks: the task of each row.
          rows: row numbers, int64 [n].
          ahead: how many consecutive rows, starting with each row, are needed soon, int64 [n].
        """
        if self._threads is None:
            return
        runs: list[tuple[str, int, int]] = []
        planned: set[tuple[str, int]] = set()
        for task, row, count in zip(tasks, rows.tolist(), ahead.tolist(), strict=True):
            if (task, row) in self._cache or (task, row) in planned:
                continue
            while count > 1 and (task, row + count - 1) in planned:
                count -= 1
            runs.append((task, row, self._count_missing(task, row, count)))
            planned.update((task, row + i) for i in range(runs[-1][2]))
        fetched = self._threads.map(lambda run: self._store.fetch(*run), runs)
        for (task, row, _), records in zip(runs, fetched, strict=True):
            self._store_in_cache(task, row, records)

    def read(self, task: str, rows: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        """Returns records of training rows.

        Args:
          task: name of the task.
          rows: row numbers, int64 [n].
          ahead: how many consecutive rows, starting with each row, are needed soon, int64 [n].

        Returns:
          Records of type `row_records.record_dtype`, [n].
        """
        result = []
        for row, count in zip(rows.tolist(), ahead.tolist(), strict=True):
            if (task, row) not in self._cache:
                records = self._store.fetch(task, row, self._count_missing(task, row, count))
                self._store_in_cache(task, row, records)
            record = self._cache.pop((task, row))
            self._free_bytes += record.nbytes
            result.append(record)
        return np.concatenate(result)

    def _count_missing(self, task: str, row: int, count: int) -> int:
        """Returns `count` without the rows at the end of the run that are in the cache already."""
        while count > 1 and (task, row + count - 1) in self._cache:
            count -= 1
        return count

    def _store_in_cache(self, task: str, row: int, records: np.ndarray) -> None:
        self.fetched += records.nbytes
        self.fetches += 1
        self._free_bytes -= records.nbytes
        while self._free_bytes < 0 and self._cache:
            self._free_bytes += self._cache.popitem(last=False)[1].nbytes
        for i in range(len(records)):
            old = self._cache.pop((task, row + i), None)  # the same row, read in another epoch
            self._free_bytes += old.nbytes if old is not None else 0
            self._cache[task, row + i] = records[i : i + 1]
