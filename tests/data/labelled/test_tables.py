"""Tables and JSON lines of classification."""

import csv
import gzip
import io
import json

import pytest

from xlj.config import ConfigError
from xlj.data.labelled import tables
from xlj.data.labelled.examples import Sentences

NAMED = ("premise", "hypothesis", "label")


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        raw = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return tmp_path / name

    return write


def plain(examples):
    return [(example.texts, example.label) for example in examples]


def test_a_head_names_the_columns_in_any_order(write):
    file = write("a.tsv.gz", "label\tid\tpremise\thypothesis\nneutral\t7\tone\ttwo\n")
    assert tables.read(file, NAMED) == [Sentences(("one", "two"), "neutral", f"{file}:2")]
    assert plain(tables.read(file, ("hypothesis", "label"))) == [(("two",), "neutral")]


def test_numbers_and_nothing_are_for_tables_without_a_head(write):
    file = write("a.tsv", "x\tone\t1\ttwo\ny\tthree\t0\tfour\n")
    assert plain(tables.read(file, ("2", "4", "3"))) == [
        (("one", "two"), "1"),
        (("three", "four"), "0"),
    ]
    pairs, single = write("pairs.tsv", "a\tb\t1\n"), write("single.tsv", "a b\t1\n")
    assert plain(tables.read(pairs, ())) == [(("a", "b"), "1")]
    assert plain(tables.read(single, ())) == [(("a b",), "1")]


def test_what_csv_writes_is_read_back(write):
    """XTREME writes its files so: quotation marks where needed, and carriage returns."""
    rows = [
        ('"All" of it', 'he said "no"', "1"),
        ('"', '""', "0"),
        ("a\u2028b\u00a0c", ' "x" ', "1"),
        ("", "an empty side", "0"),
    ]
    buffer = io.StringIO()
    csv.writer(buffer, delimiter="\t").writerows(rows)
    assert buffer.getvalue().count('""') > 5 and "\r\n" in buffer.getvalue()
    read = plain(tables.read(write("a.tsv", buffer.getvalue()), ()))
    assert read == [((first, second), label) for first, second, label in rows]


def test_quotation_marks_of_the_text_stay(write):
    for text in ('"a" and "b"', 'say "a"', '"', '"open'):
        assert plain(tables.read(write("a.tsv", f"{text}\t1\n"), ())) == [((text,), "1")]


@pytest.mark.parametrize(
    "name, content, columns",
    [
        ("a.tsv", "one\ttwo\n", ("1", "2", "3")),  # XTREME's test files
        ("a.tsv", "one\ttwo\t-\n", ("1", "2", "3")),
        ("a.tsv", "premise\thypothesis\none\ttwo\n", NAMED),
        ("a.tsv", "hypothesis\tlabel\tpremise\ntwo\t\tone\n", NAMED),
        ("a.jsonl", '{"premise": "one", "hypothesis": "two"}\n', NAMED),
        ("a.jsonl", '{"premise": "one", "hypothesis": "two", "label": null}\n', NAMED),
    ],
)
def test_without_labels(write, name, content, columns):
    assert plain(tables.read(write(name, content), columns)) == [(("one", "two"), None)]


def test_empty_files_have_no_examples(write):
    assert tables.read(write("a.tsv", ""), NAMED) == tables.read(write("a.tsv", ""), ()) == []
    assert tables.read(write("a.tsv", "premise\thypothesis\tlabel\n"), NAMED) == []


def test_json_lines(write):
    rows = [
        {"premise": "a\tb", "hypothesis": "ç", "label": 0, "more": [1]},
        {"label": "contradictory", "hypothesis": "d", "premise": "c"},
    ]
    file = write("a.jsonl.gz", "".join(json.dumps(row) + "\n" for row in rows))
    for labels, spelt in (
        ((), "contradictory"),
        (("0", "contradiction"), "contradiction"),
        (("0", "contradictory", "contradiction"), "contradictory"),
    ):
        found = plain(tables.read(file, NAMED, labels))
        assert found == [(("a\tb", "ç"), "0"), (("c", "d"), spelt)]


@pytest.mark.parametrize(
    "name, content, columns, message",
    [
        ("a.tsv", "a\tb\t1\nc\td\n", (), "a.tsv:2: 2 columns, but 3 in the first line"),
        ("a.tsv", "a\tb\tc\t1\n", (), "a.tsv:1: 4 columns, but without task.columns"),
        ("a.tsv", "s\tt\tLabel\na\tb\t1\n", (), "a.tsv:1: this is the head .*columns=s,t,Label"),
        ("a.tsv", "s\tlabel\na\t1\n", ("1", "2"), "a.tsv:1: this is the head"),
        ("a.tsv", "a\n", (), "a.tsv:1: 1 columns, but without task.columns"),
        ("a.tsv", "a\tb\n", ("1", "2", "4"), r"a.tsv:1: 2 columns, but task.columns=1,2,4"),
        ("a.tsv", "a\tb\n", ("3", "1"), "a.tsv:1: 2 columns, but"),
        ("a.tsv", "a\tb\n", ("0", "1"), "a.tsv:1: 2 columns, but"),
        ("a.tsv", "a\tb\n", ("1", "label"), "names or numbers, not both"),
        ("a.tsv", "a\tb\n", ("1",), "task.columns=1: name one or two"),
        ("a.tsv", "premise\tlabel\na\t1\n", NAMED, "a.tsv:1: there is no column 'hypothesis'"),
        ("a.tsv", "premise\thypothesis\tlabels\n", NAMED, "a.tsv:1: there is no column 'label'"),
        ("a.tsv", "premise\tlabel\tlabel\n", ("premise", "label"), "a.tsv:1: .* two columns"),
        ("a.tsv", "a\tb\t1\n\nc\td\t1\n", (), "a.tsv:2: the line is empty"),
        ("a.tsv", " \t\u00a0\t1\n", (), "a.tsv:1: there is no text"),
        ("a.tsv", b"a\tb\t1\n\xff\tb\t1\n", (), "a.tsv:2: the line is not UTF-8"),
        ("a.jsonl", '{"premise": "a"}\n', (), "a.jsonl: say in task.columns"),
        ("a.jsonl", "{}\n{\n", NAMED, "a.jsonl:1: there is no key 'premise'"),
        ("a.jsonl", '{"a": "b", "c": 1}\n{\n', ("a", "c"), "a.jsonl:2: it is no JSON"),
        ("a.jsonl", "[]\n", NAMED, "a.jsonl:1: it is no JSON object"),
        ("a.jsonl", '{"a": 1, "c": 1}\n', ("a", "c"), "a.jsonl:1: a is 1, which is no text"),
        ("a.jsonl", '{"a": "b", "c": true}\n', ("a", "c"), "a.jsonl:1: c is True, neither"),
        ("a.jsonl", '{"a": "\\ud800", "c": 1}\n', ("a", "c"), "a.jsonl:1: a is .*no text"),
    ],
)
def test_what_does_not_fit(write, name, content, columns, message):
    with pytest.raises(ConfigError, match=message):
        tables.read(write(name, content), columns)


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl"])
def test_files_may_call_a_column_differently(tmp_path, suffix):
    columns = ("premise|sentence1", "hypothesis|sentence2", "label")
    for names in (("premise", "hypothesis"), ("sentence1", "sentence2")):
        path = tmp_path / f"{names[0]}{suffix}"
        row = {names[0]: "A man sleeps.", "label": "entailment", names[1]: "He rests."}
        text = (
            json.dumps(row)
            if suffix == ".jsonl"
            else "\n".join(map("\t".join, zip(*row.items(), strict=True)))
        )
        path.write_text(text + "\n", "utf-8")
        (found,) = tables.read(path, columns)
        assert found.texts == ("A man sleeps.", "He rests.") and found.label == "entailment"
    with pytest.raises(ConfigError, match="'text'"):
        tables.read(path, ("text|sentence", "sentence2", "label"))
