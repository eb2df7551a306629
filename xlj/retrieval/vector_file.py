"""Vectors on disk as NumPy's .npy, written row by row without knowing how many there will be."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from xlj.config import ConfigError
from xlj.io import atomic
from xlj.io.malformed import Skipping


@contextmanager
def writing(
    path: Path, width: int, dtype: str, skipping: Skipping | None = None
) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that appends rows [n, width] to a .npy file [rows, width]. The file appears under
    `path`, complete, when the block ends well, else not at all.

    Args:
      dtype: one of `choices.VECTOR_TYPES`, stored little-endian.
      skipping: whose `rows` are NaN.

    Raises:
      ConfigError: (the function) if a number is not finite, or not in that type.
    """
    stored, rows = np.dtype(dtype).newbyteorder("<"), 0
    with atomic.writing(path) as file:

        def write_header() -> None:  # NumPy leaves room in it for any number of rows
            shape = {"descr": stored.str, "fortran_order": False, "shape": (rows, width)}
            np.lib.format.write_array_header_1_0(file, shape)

        def append(vectors: np.ndarray) -> None:
            nonlocal rows
            with np.errstate(over="ignore"):  # said below, with the row
                made = np.array(vectors, stored, order="C")
            bad = np.flatnonzero(~np.isfinite(made).all(1))
            if len(bad):
                raise ConfigError(
                    f"{path}: the vector of line {rows + bad[0] + 1} does not fit into {dtype}, or "
                    "is not finite at all"
                )
            gone = [row - rows for row in (skipping.rows if skipping else ()) if row >= rows]
            made[[row for row in gone if row < len(made)]] = np.nan
            file.write(made.tobytes())
            rows += len(made)

        write_header()
        yield append
        file.seek(0)
        write_header()
