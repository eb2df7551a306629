"""Sorted sets of line hashes on disk; memory-mapped, so they can be larger than memory."""

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from xlj.data.text.cleaning import BLANK
from xlj.io import atomic, storage
from xlj.io.storage import AnyPath


def write(folder: AnyPath, parts: Iterable[np.ndarray]) -> AnyPath:
    """Writes the union of uint64 arrays, without blank lines, to a file named by its content."""
    hashes = np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))
    content = hashes[hashes != BLANK].astype("<u8").tobytes()
    file = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.hashes"
    if not file.is_file():
        atomic.write(file, content)
    return file


@lru_cache(maxsize=16)
def open_set(file: AnyPath | None) -> np.ndarray:
    """Memory-maps the hashes of a file, uint64; None gives an empty set."""
    return np.empty(0, np.uint64) if file is None else storage.memory_map(file, "<u8")


def has(known: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Tests which hashes are in the sorted array `known`: bool [n]."""
    if not len(known):
        return np.zeros(len(hashes), bool)
    places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return known[places] == hashes
