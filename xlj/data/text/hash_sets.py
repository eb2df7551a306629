"""Sets of line hashes in sorted files, which are memory-mapped to look up hashes."""

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from xlj.data.text.cleaning import BLANK
from xlj.io import atomic, storage
from xlj.io.storage import AnyPath


def write(folder: AnyPath, parts: Iterable[np.ndarray]) -> AnyPath:
    """Writes the union of arrays of hashes to a file, without the hash of a blank line.

    Memory must hold all hashes.

    Args:
      folder: the folder of the file.
      parts: uint64 arrays.

    Returns:
      The file, whose name is a hash of its content.
    """
    hashes = np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))
    content = hashes[hashes != BLANK].astype("<u8").tobytes()
    file = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.hashes"
    if not file.is_file():
        atomic.write(file, content)
    return file


@lru_cache(maxsize=16)
def open_set(file: AnyPath | None) -> np.ndarray:
    """Memory-maps the sorted hashes of a file, uint64; returns an empty array for None."""
    return np.empty(0, np.uint64) if file is None else storage.memory_map(file, "<u8")


def contains(sorted_set: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Tests which hashes are in a set.

    Args:
      sorted_set: the set, a sorted uint64 array.
      hashes: uint64 [n].

    Returns:
      bool [n].
    """
    if not len(sorted_set):
        return np.zeros(len(hashes), bool)
    indices = np.minimum(np.searchsorted(sorted_set, hashes), len(sorted_set) - 1)
    return sorted_set[indices] == hashes
