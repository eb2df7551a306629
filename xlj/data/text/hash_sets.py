"""Sets of line hashes on disk, in order: read as they are asked, whatever their size."""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np

from xlj.data.text.cleaning import BLANK
from xlj.io import atomic


def write(folder: Path, parts: Iterable[np.ndarray]) -> Path:
    """Writes the union of uint64 arrays, without blank lines, under a name of its content."""
    found = np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))
    content = found[found != BLANK].astype("<u8").tobytes()
    file = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.hashes"
    if not file.is_file():
        atomic.write(file, content)
    return file


@lru_cache(maxsize=16)
def opened(file: Path | None) -> np.ndarray:
    """The hashes of a file, uint64, mapped; none of no file."""
    if file is None or not file.stat().st_size:
        return np.empty(0, np.uint64)
    return np.asarray(np.memmap(file, "<u8", "r"))


def has(known: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Which hashes are among `known`, which are in order: bool [n]."""
    if not len(known):
        return np.zeros(len(hashes), bool)
    places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return known[places] == hashes
