"""Reading tagging records in the format of Hugging Face `datasets`."""

import json

import pytest

from xlj.config import ConfigError
from xlj.config.task import Task
from xlj.data.labelled import records, task_sources


@pytest.fixture
def write(tmp_path):
    def write(*rows, name="a.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return tmp_path / name

    return write


def read(path, columns=(), names=(), chunk_tags=False):
    sentences = records.read_words(path, "en", columns, names, chunk_tags)
    return [(sentence.words, sentence.tags) for sentence in sentences]


def test_tags_are_read_by_name_with_their_places(write):
    """WikiAnn: other lists are not read as tags, and the language before each word is removed."""
    row = {"tokens": ["en:Ada", "en:sings"], "ner_tags": ["B-PER", "O"], "langs": ["en", "en"]}
    file = write(row, {"tokens": [], "ner_tags": []}, row, name="a.json")
    assert read(file) == [(("Ada", "sings"), ("B-PER", "O"))] * 2
    sentences = records.read_words(file, "en", (), (), True)
    assert sentences[1].place == f"{file}:3"


def test_tags_may_be_class_numbers(write):
    file = write({"tokens": ["Ada", "sings"], "pos_tags": [5, 6], "ner_tags": [1, 0]})
    assert read(file, chunk_tags=True, names=("O", "B-PER")) == [(("Ada", "sings"), ("B-PER", "O"))]
    assert read(file, ("tokens", "pos_tags")) == [(("Ada", "sings"), ("5", "6"))]
    with pytest.raises(ConfigError, match="it is unclear which keys .* pos_tags has '5', '6'"):
        read(file)
    with pytest.raises(ConfigError, match="a.jsonl:1: ner_tags are numbers .* task.names=O,B-PER"):
        read(file, chunk_tags=True)
    with pytest.raises(ConfigError, match="a.jsonl:1: no class 1: task.names has 1 names"):
        read(file, chunk_tags=True, names=("O",))
    assert read(write({"tokens": ["a"], "tags": [-1]}), names=("O",)) == [(("a",), None)]


@pytest.mark.parametrize(
    "row, message",
    [
        ({"tokens": ["a"], "tags": ["X", "Y"]}, "1 tokens but 2 tags"),
        ({"tokens": ["a", ""], "tags": ["X", "Y"]}, "tokens contains '', expected a word"),
        (
            {"tokens": ["a"], "tags": [1.5]},
            "tags contains 1.5, expected a tag or the number of a class",
        ),
        ({"tokens": "a b", "tags": ["X"]}, "it is unclear which keys"),
        ({"tokens": ["a"], "mine": ["X"]}, "it is unclear which key has the tags; .*mine has 'X'"),
        ([1], "not a JSON object"),
    ],
)
def test_invalid_records_are_refused_with_their_line(write, row, message):
    with pytest.raises(ConfigError, match=f"a.jsonl:1: .*{message}"):
        read(write(row))


def test_formats_of_tagging_files_are_detected(write, tmp_path):
    rows = write({"tokens": ["a"], "tags": ["X"]}, name="a.txt")
    task = Task(kind="tagging", metric="tag_accuracy")
    assert [e.tags for e in task_sources.read(f"{rows}", "en", task)] == [("X",)]
    rows.write_text('{ PUNCT\n"a" X\n')
    assert [e.words for e in task_sources.read(f"{rows}", "en", task)] == [("{", '"a"')]


def test_parquet_files_are_read(tmp_path):
    import pyarrow.parquet

    table = pyarrow.table({"tokens": [["Ada", "sings"]], "ner_tags": [[1, 0]]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    actual = read(tmp_path / "a.parquet", names=("O", "B-PER"), chunk_tags=True)
    assert actual == [(("Ada", "sings"), ("B-PER", "O"))]
