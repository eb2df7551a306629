"""Malformed records raise an error by default; `skip` drops and counts them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xlj.config import ConfigError
from xlj.data.text.text_tasks import text_tasks
from xlj.data.text.text_units import MARKS, ReadOptions, UnitReader, read_excluded_lines


def read_with_skip(task, size=1 << 20):
    """Reads a task with `skip`. Returns the rows and, by reason, the number and the first place of
    malformed records."""
    rows, malformed = [], {}
    for index, unit in enumerate(task.units(size)):
        reader = UnitReader(unit, index, ReadOptions("skip", ""))
        rows += [row for chunk in reader.chunks() for row in zip(*chunk.columns, strict=True)]
        for why, (count, part, before) in reader.malformed.items():
            place = unit[part].source.place(unit[part].start, before)
            earlier, first = malformed.get(why, (0, place))
            malformed[why] = (earlier + count, first)
            assert reader.dropped[why] == (0 if why == MARKS else count)
    return rows, {
        why: (count, first.rpartition("/")[2]) for why, (count, first) in malformed.items()
    }


def check_error(task, message):
    with pytest.raises(ConfigError, match=message):
        for index, unit in enumerate(task.units(1 << 20)):
            list(UnitReader(unit, index, ReadOptions("error", "")).chunks())


@pytest.mark.parametrize("size", [200, 1 << 20])
def test_malformed_lines_in_tables_of_pairs_are_counted(config, write, size):
    good = [f"a {i}\tb {i}" for i in range(40)]
    bad = ["", " ", "one side", "a\tb\tc", "a\tb\t", "\tb", "a\t \u00a0", "\t", "\ufeffm\tn"]
    write("x.tsv", "\n".join([*good, *bad, *good]) + "\n")
    (task,) = text_tasks(config(pairs=("en-de",), parallel=("@x.tsv",)).data)
    rows, malformed = read_with_skip(task, size)
    pairs = [tuple(line.split("\t")) for line in good]
    assert rows == [*pairs, ("m", "n"), *pairs]
    assert malformed == {
        "blank line": (2, "x.tsv: line 41"),
        "wrong number of columns": (3, "x.tsv: line 43"),
        "blank side": (3, "x.tsv: line 46"),
        MARKS: (1, "x.tsv: line 49"),
    }
    check_error(
        task, r"x\.tsv: line 41 is blank; a line must be .*; fix it, or set data\.malformed=sk"
    )


def test_aligned_files_may_have_blank_lines_at_the_same_place(config, write):
    write("x.en", "a\n\nc\n\ne\n")
    write("x.de", "A\n\n\nD\nE\n")
    (task,) = text_tasks(config(pairs=("en-de",), parallel=("@x.en|@x.de",)).data)
    rows, malformed = read_with_skip(task)
    assert rows == [("a", "A"), ("", ""), ("e", "E")]
    assert malformed == {"blank side": (2, "x.de: line 3")}
    check_error(task, r"x\.de: line 3 has a blank side; fix it, or set data\.malformed=skip")


def test_malformed_lines_of_text_are_counted(config, write):
    long = b"x" * 1_200_000
    write("x.txt", b"one\n\n" + long + b"\ntw\xff\n\0\n\xef\xbb\xbfthree\xef\xbb\xbf\n" + long)
    (task,) = text_tasks(config(languages=("en",), mono=("@x.txt",)).data)
    for size in (30_000, 1 << 22):
        rows, malformed = read_with_skip(task, size)
        assert [line for (line,) in rows if line] == ["one", "three\ufeff"]
        assert malformed == {
            "line too long": (2, "x.txt: line 3"),
            "invalid UTF-8": (1, "x.txt: line 4"),
            "NUL": (1, "x.txt: line 5"),
            MARKS: (1, "x.txt: line 6"),
        }
    check_error(
        task, r"x\.txt: line 3 has more than 1,048,576 bytes; .*; fix it, or set data\.malform"
    )


def test_malformed_json_records_are_counted(config, write):
    lines = ['{"t": {"a": "one\\ntwo", "b": "b"}}', "", '\ufeff{"t": {"a": "three", "b": "b"}}']
    bad = ["{", "[1]", '{"t": {"b": "b"}}', '{"t": {"a": 5, "b": "b"}}', '{"t": {"a": "\\u0000"}}']
    write("x.jsonl", "\n".join([*lines, *bad, '{"t": {"a": "\\ud800", "b": ""}}', lines[0]]))
    (task,) = text_tasks(config(languages=("en",), mono=("@x.jsonl#t.a",)).data)
    rows, malformed = read_with_skip(task)
    assert [line for (line,) in rows if line] == ["one", "two", "three", "one", "two"]
    expected = {
        MARKS: (1, "x.jsonl: line 3"),
        "no JSON": (1, "x.jsonl: line 4"),
        "missing field": (2, "x.jsonl: line 5"),
        "field that is no text": (1, "x.jsonl: line 7"),
        "NUL": (1, "x.jsonl: line 8"),
        "invalid UTF-8": (1, "x.jsonl: line 9"),
    }
    assert {**malformed, MARKS: expected[MARKS]} == expected and malformed[MARKS][0] == 1
    check_error(
        task, r"x\.jsonl: line 4: this record: not valid JSON .*; fix it, or set data\.malformed"
    )
    write("y.jsonl", '\n{"a": "x", "b": null}\n{"a": "x", "b": " y"}\n')
    (task,) = text_tasks(config(pairs=("en-de",), parallel=("@y.jsonl#a|b",)).data)
    assert read_with_skip(task) == ([("x", "y")], {"blank side": (1, "y.jsonl: line 2")})
    check_error(task, r"y\.jsonl: line 2 has a blank side")


def test_malformed_parquet_rows_are_counted(config, tmp_path):
    columns = {"a": ["1", "2", "3\0", "4", "5"], "b": ["x", None, "x", "", "x"]}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=2)
    (task,) = text_tasks(config(pairs=("en-de",), parallel=("@x.parquet#a|b",)).data)
    for size in (1, 1 << 20):
        rows, malformed = read_with_skip(task, size)
        assert rows == [("1", "x"), ("5", "x")]
        assert malformed == {"blank side": (2, "x.parquet: row 2"), "NUL": (1, "x.parquet: row 3")}
    check_error(task, r"x\.parquet: row 2 has a blank side")


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_text_in_another_encoding_or_with_other_line_ends_is_always_refused(config, write, policy):
    lines = "".join(f"a sentence of number {i}\n" for i in range(99))
    write("utf16.txt", lines.encode("utf-16-le"))
    write("marked.txt", lines.encode("utf-16"))
    write("returns.txt", lines.replace("\n", "\r"))
    for name, message in (
        ("utf16", "the text is UTF-16LE by its bytes"),
        ("marked", "the text is UTF-16LE by its byte order mark"),
        ("returns", "its lines end in carriage returns only"),
    ):
        (task,) = text_tasks(config(languages=("en",), mono=(f"@{name}.txt",)).data)
        with pytest.raises(ConfigError, match=rf"{name}\.txt: {message}") as error:
            for index, unit in enumerate(task.units(1 << 20)):
                list(UnitReader(unit, index, ReadOptions(policy, "")).chunks())
        assert "skip" not in str(error.value)


def test_malformed_excluded_lines_are_errors(config, write, tmp_path):
    write("x.tsv", "a\tb\n")
    write("test.txt", b"one\n\xff\n")
    more = {"exclude": (f"{tmp_path}/test.txt",), "malformed": "skip"}
    data = config(pairs=("en-de",), parallel=("@x.tsv",), **more).data
    with pytest.raises(ConfigError, match=r"^data\.exclude: \S*test\.txt: line 2 is not UTF-8$"):
        list(read_excluded_lines(data))


def test_the_identity_names_the_policy():
    assert ReadOptions("error", "").identity() == {"malformed": "error", "filter": ["", ""]}
    skip = ReadOptions("skip", "").identity()
    assert json.loads(json.dumps(skip)) == {"malformed": "skip", "filter": ["", ""]}
