"""Fetches rows from disk in runs, a little ahead of the batches that use them."""

from collections import OrderedDict

import numpy as np

from xlj.data.rows.store import RowStore

CACHE_BYTES = 1 << 30
"""The most that is held for batches to come."""


class Fetcher:
    """Reads the training rows of a store, each about once.

    Attributes:
      fetched: bytes read from disk so far.
      fetches: how often, each time rows that follow each other.
    """

    def __init__(self, store: RowStore, cache_bytes: int = CACHE_BYTES):
        self.fetched = self.fetches = 0
        self._store, self._room = store, cache_bytes
        self._held: OrderedDict[tuple[str, int], np.ndarray] = OrderedDict()

    def read(self, task: str, rows: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        """Records of a task (`store.record`), [n].

        Args:
          rows: their numbers, int64 [n].
          ahead: how many rows from each on, with it, will be read soon, int64 [n].
        """
        taken = []
        for row, count in zip(rows.tolist(), ahead.tolist(), strict=True):
            if (task, row) not in self._held:
                self._fetch(task, row, count)
            record = self._held.pop((task, row))
            self._room += record.nbytes
            taken.append(record)
        return np.concatenate(taken)

    def _fetch(self, task: str, row: int, count: int) -> None:
        while count > 1 and (task, row + count - 1) in self._held:
            count -= 1  # a part that was fetched before
        records = self._store.fetch(task, row, count)
        self.fetched += records.nbytes
        self.fetches += 1
        self._room -= records.nbytes
        while self._room < 0 and self._held:
            self._room += self._held.popitem(last=False)[1].nbytes
        for i in range(count):
            before = self._held.pop((task, row + i), None)  # of an epoch that still needs it
            self._room += before.nbytes if before is not None else 0
            self._held[task, row + i] = records[i : i + 1]
