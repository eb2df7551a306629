"""Writes vectors to a .npy file block by block; their number need not be known in advance."""

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
    """Context manager that yields a function which appends rows [n, width] to a .npy file.

    If the `with` block ends without an error, the complete file appears at `path`. Otherwise no
    file appears.

    Args:
      dtype: one of `choices.VECTOR_TYPES`, stored little-endian.
      skipping: the rows with the indices `skipping.rows` are set to NaN.

    Raises:
      ConfigError: raised by the yielded function if a number is not finite, or too large for
        `dtype`.
    """
    storage_type, rows = np.dtype(dtype).newbyteorder("<"), 0
    with atomic.writing(path) as file:

        def write_header() -> None:  # NumPy reserves space in the header for any number of rows
            shape = {"descr": storage_type.str, "fortran_order": False, "shape": (rows, width)}
            np.lib.format.write_array_header_1_0(file, shape)

        def append(vectors: np.ndarray) -> None:
            nonlocal rows
            with np.errstate(over="ignore"):  # overflow is reported below, with the line
                block = np.array(vectors, storage_type, order="C")
            not_finite = np.flatnonzero(~np.isfinite(block).all(1))
            if len(not_finite):
                other_type = "" if dtype == "float32" else "use float32, or "
                raise ConfigError(
                    f"{path}: the vector of line {rows + not_finite[0] + 1} is too large for "
                    f"{dtype}, or not finite; {other_type}check the weights of the model"
                )
            skipped = [row - rows for row in (skipping.rows if skipping else ()) if row >= rows]
            block[[row for row in skipped if row < len(block)]] = np.nan
            file.write(block.tobytes())
            rows += len(block)

        write_header()
        yield append
        file.seek(0)
        write_header()
