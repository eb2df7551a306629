"""Files of sentences, labels and pairs are read; errors name the file and the line.

NumPy can read a file of vectors, and the file exists only when it is complete.
"""

import gzip

import numpy as np
import pytest

from xlj.config import ConfigError
from xlj.config.choices import VECTOR_TYPES
from xlj.retrieval import sentence_files


@pytest.fixture
def file(tmp_path):
    def make(content):
        path = tmp_path / "file.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def test_a_compressed_file_is_read(tmp_path):
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(" één \r\n\nzwei\u2028drei\n".encode()))
    assert list(sentence_files.lines(path)) == ["één", "", "zwei\u2028drei"]


def test_sentences_with_and_without_ids_are_read(file):
    assert sentence_files.read_with_ids(file("a b\nc\n")) == (["a b", "c"], None)
    assert sentence_files.read_with_ids(file("x\ta b\ny\ta b\n")) == (["a b", "a b"], ["x", "y"])


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        ("x\ta\n\ny\t\n", ":3: a column is blank"),
        (b"a\nb\n\xff\n", ":3: the line is not UTF-8"),
        ("a\nb\tc\n", ":2: 2 columns; expected a sentence"),
        ("x\ta\nb\n", ":2: 1 columns; expected a sentence"),
        ("x\ta\tb\n", ":1: 3 columns; expected a sentence"),
        ("x\ta\ny\tb\nx\tc\n", ":3: the id x is also the id of line 1"),
    ],
)
def test_errors_name_the_wrong_line(file, content, message):
    with pytest.raises(ConfigError) as error:
        sentence_files.read_with_ids(file(content))
    assert message in str(error.value)


def test_indices_of_translations_are_read_and_checked(file):
    np.testing.assert_array_equal(sentence_files.read_indices(file("2\n0\n"), 3, 2), [2, 0])
    for content, message in [
        ("2\n3\n", ":2: '3' is not the index of a source line; expected 0 to 2"),
        ("2\n-1\n", ":2: '-1' is not the index of a source line"),
        ("2\n", "has 1 lines, but there are 2 target sentences"),
    ]:
        with pytest.raises(ConfigError) as error:
            sentence_files.read_indices(file(content), 3, 2)
        assert message in str(error.value)


def test_pairs_of_ids_are_read_and_checked(file):
    ids = ["s1", "s2"], ["t1"]
    assert sentence_files.read_pairs(file("s2\tt1\n"), *ids) == {("s2", "t1")}
    for content, message in [
        ("s1\tt1\nt1\ts2\n", ":2: t1 is not the id of a source"),
        ("s1\ts2\n", ":1: s2 is not the id of a target"),
        ("s1 t1\n", ":1: 1 columns; expected `source id TAB target id`"),
    ]:
        with pytest.raises(ConfigError) as error:
            sentence_files.read_pairs(file(content), *ids)
        assert message in str(error.value)


def test_blank_lines_between_documents_are_skipped(file, tmp_path):
    assert sentence_files.read(file("a\n\n b\n \n")) == ["a", "b"]
    assert sentence_files.read_with_ids(file("x\ta\n\ny\tb\n")) == (["a", "b"], ["x", "y"])


def test_parallel_files_must_have_the_same_blank_lines(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("a\n\nb\n"), other.write_text("c\n\nd\n\n")
    assert sentence_files.read_parallel(one, other) == (["a", "b"], ["c", "d"])
    task = sentence_files.read_task(one, other, None)
    assert task.source == ["a", "b"] and task.translations is None
    with pytest.raises(ConfigError, match="one:2: the line is blank, but XTREME's labels"):
        sentence_files.read_task(one, other, None, is_numbered=True)
    other.write_text("\nc\nd\n")
    with pytest.raises(ConfigError, match="other:1: the line is blank, but this line of .*one"):
        sentence_files.read_task(one, other, None)
    other.write_text("c\n")
    with pytest.raises(ConfigError, match="one has 2 sentences, but .*other has 1; expected"):
        sentence_files.read_parallel(one, other)


@pytest.mark.parametrize(
    "name, content, format_name",
    [
        ("a.jsonl", '{"text": "a"}\n', "JSON"),
        ("a.txt", '{"text": "a"}\n', "JSON"),
        ("a.csv", "text,label\n", "CSV"),
        ("a.txt", "a cat ||| eine Katze\n", "[|]{3}"),
        ("a.txt", '<?xml version="1.0"?>\n<tmx version="1.4">', "TMX"),
        ("a.txt", b"PK\x03\x04" + bytes(40), "zip"),
        ("a.txt", gzip.compress(b"a", mtime=0), "gzip.*add .gz to its name"),
    ],
)
def test_errors_name_the_format_of_unsupported_files(tmp_path, name, content, format_name):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=f"{name}: this is {format_name}"):
        sentence_files.read(tmp_path / name)


@pytest.mark.parametrize("dtype", VECTOR_TYPES)
@pytest.mark.parametrize("parts", [(), (3,), (2, 0, 1), (1,) * 12])
def test_numpy_reads_what_was_written(tmp_path, dtype, parts):
    file = tmp_path / "vectors.npy"
    rows = np.random.default_rng(0).normal(size=(sum(parts), 5)).astype(np.float32)
    with sentence_files.writing_vectors(file, 5, dtype) as append:
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
        sentence_files.writing_vectors(tmp_path / "vectors.npy", 3, dtype) as append,
    ):
        append(vectors)
        append(bad)
    assert not list(tmp_path.iterdir())
