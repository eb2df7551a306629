"""Sets of line hashes on disk, in order: read as they are asked, whatever their size."""

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from xlj.data.text.cleaning import BLANK
from xlj.io import atomic, storage
from xlj.io.storage import AnyPath


def write(folder: AnyPath, parts: Iterable[np.ndarray]) -> AnyPath:
    """Writes the union of uint64 arrays, without blank lines, under a name of its content."""
    found = np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))
    content = found[found != BLANK].astype("<u8").tobytes()
    file = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.hashes"
    if not file.is_file():
        atomic.write(file, content)
    return file


@lru_cache(maxsize=16)
def opened(file: AnyPath | None) -> np.ndarray:
    """The hashes of a file, uint64, mapped; none of no file."""
    return np.empty(0, np.uint64) if file is None else storage.mapped(file, "<u8")


def has(known: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Which hashes are among `known`, which are in order: bool [n]."""
    if not len(known):
        return np.zeros(len(hashes), bool)
    places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return known[places] == hashes
