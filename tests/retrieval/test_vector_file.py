"""NumPy can read a file of vectors, and the file exists only when it is complete."""

import numpy as np
import pytest

from xlj.config import ConfigError
from xlj.config.choices import VECTOR_TYPES
from xlj.retrieval import vector_file


@pytest.mark.parametrize("dtype", VECTOR_TYPES)
@pytest.mark.parametrize("parts", [(), (3,), (2, 0, 1), (1,) * 12])
def test_numpy_reads_what_was_written(tmp_path, dtype, parts):
    file = tmp_path / "vectors.npy"
    rows = np.random.default_rng(0).normal(size=(sum(parts), 5)).astype(np.float32)
    with vector_file.writing(file, 5, dtype) as append:
        for part in np.split(rows, np.cumsum(parts)[:-1]) if parts else ():
            append(part)
        assert not file.exists()
    vectors = np.load(file, mmap_mode="r", allow_pickle=False)
    assert vectors.dtype == dtype and vectors.shape == rows.shape
    np.testing.assert_array_equal(vectors, rows.astype(dtype))
    assert [path.name for path in tmp_path.iterdir()] == ["vectors.npy"]


def test_the_size_of_a_header_does_not_depend_on_the_number_of_rows(tmp_path):
    def size(rows):
        with (tmp_path / "header").open("wb") as file:
            shape = {"descr": "<f4", "fortran_order": False, "shape": (rows, 768)}
            np.lib.format.write_array_header_1_0(file, shape)
            return file.tell()

    assert size(0) == size(10**15)


@pytest.mark.parametrize("dtype, value", [("float16", 1e6), ("float32", np.nan)])
def test_a_value_that_the_type_cannot_store_is_refused_and_leaves_no_file(tmp_path, dtype, value):
    vectors = np.ones((4, 3), np.float32)
    bad = vectors.copy()
    bad[2, 1] = value
    with (
        pytest.raises(ConfigError, match=f"the vector of line 7 is too large for {dtype}"),
        vector_file.writing(tmp_path / "vectors.npy", 3, dtype) as append,
    ):
        append(vectors)
        append(bad)
    assert not list(tmp_path.iterdir())
