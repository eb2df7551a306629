"""Reading classification examples from tables and JSON lines."""

import csv
import gzip
import io
import json

import pytest

from xlj.config import ConfigError
from xlj.data.labelled import records, tables
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


def test_a_header_names_the_columns_in_any_order(write):
    file = write("a.tsv.gz", "label\tid\tpremise\thypothesis\nneutral\t7\tone\ttwo\n")
    assert tables.read(file, NAMED) == [Sentences(("one", "two"), "neutral", f"{file}:2")]
    assert plain(tables.read(file, ("hypothesis", "label"))) == [(("two",), "neutral")]


def test_without_a_header_columns_are_numbers_or_have_a_default(write):
    file = write("a.tsv", "x\tone\t1\ttwo\ny\tthree\t0\tfour\n")
    assert plain(tables.read(file, ("2", "4", "3"))) == [
        (("one", "two"), "1"),
        (("three", "four"), "0"),
    ]
    pairs, single = write("pairs.tsv", "a\tb\t1\n"), write("single.tsv", "a b\t1\n")
    assert plain(tables.read(pairs, ())) == [(("a", "b"), "1")]
    assert plain(tables.read(single, ())) == [(("a b",), "1")]


def test_output_of_the_csv_module_is_read_unchanged(write):
    """XTREME writes its files in this way: quotation marks if necessary, and carriage returns."""
    rows = [
        ('"All" of it', 'he said "no"', "1"),
        ('"', '""', "0"),
        ("a\u2028b\u00a0c", ' "x" ', "1"),
        ("", "an empty side", "0"),
    ]
    buffer = io.StringIO()
    csv.writer(buffer, delimiter="\t").writerows(rows)
    assert buffer.getvalue().count('""') > 5 and "\r\n" in buffer.getvalue()
    examples = plain(tables.read(write("a.tsv", buffer.getvalue()), ()))
    assert examples == [((first, second), label) for first, second, label in rows]


def test_quotation_marks_in_the_text_do_not_change(write):
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
def test_examples_may_have_no_labels(write, name, content, columns):
    assert plain(tables.read(write(name, content), columns)) == [(("one", "two"), None)]


def test_empty_files_have_no_examples(write):
    assert tables.read(write("a.tsv", ""), NAMED) == tables.read(write("a.tsv", ""), ()) == []
    assert tables.read(write("a.tsv", "premise\thypothesis\tlabel\n"), NAMED) == []


def test_json_lines_are_read(write):
    rows = [
        {"premise": "a\tb", "hypothesis": "ç", "label": 0, "more": [1]},
        {"label": "contradictory", "hypothesis": "d", "premise": "c"},
    ]
    file = write("a.jsonl.gz", "".join(json.dumps(row) + "\n" for row in rows))
    for labels, label in (
        ((), "contradictory"),
        (("0", "contradiction"), "contradiction"),
        (("0", "contradictory", "contradiction"), "contradictory"),
    ):
        actual = plain(tables.read(file, NAMED, labels))
        assert actual == [(("a\tb", "ç"), "0"), (("c", "d"), label)]


@pytest.mark.parametrize(
    "name, content, columns, message",
    [
        ("a.tsv", "a\tb\t1\nc\td\n", (), "a.tsv:2: 2 columns, but 3 in the first line"),
        ("a.tsv", "a\tb\t1\nc\td\t1\t2\n", (), "a.tsv:2: 4 columns, but 3 in the first line"),
        ("a.tsv", "a\tb\tc\t1\n", (), "a.tsv:1: 4 columns, but without task.columns"),
        ("a.tsv", "s\tt\tLabel\na\tb\t1\n", (), "a.tsv:1: .* is the header .*columns=s,t,Label"),
        ("a.tsv", "s\tlabel\na\t1\n", ("1", "2"), "a.tsv:1: this line is the header"),
        ("a.tsv", "a\n", (), "a.tsv:1: 1 columns, but without task.columns"),
        ("a.tsv", "a\tb\n", ("1", "2", "4"), r"a.tsv:1: 2 columns, but task.columns=1,2,4"),
        ("a.tsv", "a\tb\n", ("3", "1"), "a.tsv:1: 2 columns, but"),
        ("a.tsv", "a\tb\n", ("0", "1"), "a.tsv:1: 2 columns, but"),
        ("a.tsv", "a\tb\n", ("1", "label"), "use only names or only numbers of columns"),
        ("a.tsv", "a\tb\n", ("1",), "task.columns=1: name one or two"),
        ("a.tsv", "premise\tlabel\na\t1\n", NAMED, "a.tsv:1: no column 'hypothesis'"),
        ("a.tsv", "premise\thypothesis\tlabels\n", NAMED, "a.tsv:1: no column 'label'"),
        ("a.tsv", "premise\tlabel\tlabel\n", ("premise", "label"), "a.tsv:1: .* two columns"),
        ("a.tsv", "a\tb\t1\n\nc\td\t1\n", (), "a.tsv:2: the line is empty"),
        ("a.tsv", " \t\u00a0\t1\n", (), "a.tsv:1: the text is empty"),
        ("a.tsv", b"a\tb\t1\n\xff\tb\t1\n", (), "a.tsv:2: the line is not UTF-8"),
        ("a.jsonl", '{"premise": "a"}\n', (), "set task.columns .* has the keys premise"),
        ("a.jsonl", "{}\n{\n", NAMED, "a.jsonl:1: no key 'premise'"),
        ("a.jsonl", '{"a": "b", "c": 1}\n{\n', ("a", "c"), "a.jsonl:2: not valid JSON"),
        ("a.jsonl", "[]\n", NAMED, "a.jsonl:1: not a JSON object"),
        ("a.jsonl", '{"a": 1, "c": 1}\n', ("a", "c"), "a.jsonl:1: a is 1, expected a text"),
        (
            "a.jsonl",
            '{"a": "b", "c": true}\n',
            ("a", "c"),
            "a.jsonl:1: c is True, expected a text or a whole number",
        ),
        ("a.jsonl", '{"a": "\\ud800", "c": 1}\n', ("a", "c"), "a.jsonl:1: a is .*expected a text"),
    ],
)
def test_invalid_files_and_columns_are_refused(write, name, content, columns, message):
    with pytest.raises(ConfigError, match=message):
        tables.read(write(name, content), columns)


XNLI = "language\tgold_label\tsentence1_parse\tsentence1\tsentence2\tgenre\tlabel1\n"
MASSIVE = {"id": "0", "locale": "de-DE", "scenario": "alarm", "intent": "alarm_set", "utt": "weck"}


@pytest.mark.parametrize(
    "name, content, expected",
    [
        (
            "sib.tsv",
            "index_id\tcategory\ttext\n1\tpolitics\tA man.\n",
            (("A man.",), "politics", ""),
        ),
        ("mldoc.tsv", "Category\tText\nCCAT\tA man.\n", (("A man.",), "CCAT", "")),
        ("xnli.tsv", XNLI + "de\tneutral\t(\tA\tB\tf\tn\n", (("A", "B"), "neutral", "de")),
        ("mt.tsv", "premise\thypo\tlabel\nA\tB\tneutral\n", (("A", "B"), "neutral", "")),
        ("de.jsonl", json.dumps(MASSIVE), (("weck",), "alarm_set", "de-DE")),
        ("a.csv", ",text,label\n0,A man.,x\n", (("A man.",), "x", "")),
        ("langid.tsv", "id\ttext\tlang\tlabel\n1\ta\tar\tx\n", (("a",), "x", "ar")),
        ("ar.tsv", "text\tdialect\tlabel\na\tegypt\tx\n", (("a",), "x", "")),
        ("bele.tsv", "text\tdialect\tlabel\na\tarz_Arab\tx\n", (("a",), "x", "arz_Arab")),
        ("ty.jsonl", '{"id": "swahili-3", "text": "a", "label": 1}', (("a",), "1", "sw")),
    ],
)
def test_usual_names_of_columns_are_recognised(write, name, content, expected):
    (example,) = tables.read(write(name, content), ())
    assert (example.texts, example.label, example.language) == expected


def test_a_label_may_be_a_language(write):
    for name, content in (
        ("a.tsv", "text\tlanguage\na\tde\n"),
        ("a.jsonl", '{"text": "a", "language": "de"}'),
    ):
        (example,) = tables.read(write(name, content), ("text", "language"))
        assert (example.label, example.language) == ("de", "")


def test_scores_have_other_usual_names(write):
    header = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\n"
    file = write("sick.txt", header + "1\ta\tb\tNEUTRAL\t4.5\n")
    assert plain(tables.read(file, ())) == [(("a", "b"), "NEUTRAL")]
    assert plain(tables.read(file, (), label_keys=records.SCORE_KEYS)) == [(("a", "b"), "4.5")]


def test_ambiguous_names_are_refused(write):
    for header in ("index\tquestion\tsentence\tlabel", "text\tcategory\tlabel", "a\tlabel"):
        with pytest.raises(
            ConfigError, match="a.tsv:1: .* unclear which .*task.columns=" + header.split()[0]
        ):
            tables.read(write("a.tsv", f"{header}\n1\t2\t3\n"), ())


def test_a_first_column_of_labels_is_refused(write):
    """MLDoc's files have no header."""
    rows = [f"{'CE'[i % 2]}CAT\tThe news {i}.\n" for i in range(6)]
    with pytest.raises(
        ConfigError, match=r"a\.tsv:1: .* 2 different values .*columns=2,1, or task"
    ):
        tables.read(write("a.tsv", "".join(rows)), ())
    assert plain(tables.read(write("a.tsv", "".join(rows)), ("2", "1")))[0][1] == "CCAT"
    assert len(tables.read(write("a.tsv", "".join(rows)), ("1", "2"))) == 6
    numbers = [f"Same text.\t{i}.5\n" for i in range(6)]  # scores of one text
    assert len(tables.read(write("a.tsv", "".join(numbers)), ())) == 6


def test_further_columns_are_allowed_if_columns_are_named(write, capsys):
    """Some lines of the STS benchmark end with two sources."""
    lines = ["main\tMSR\t1\t4.5\ta\tb", "main\tnews\t2\t3.0\tc\td\thttp://x\thttp://y"]
    for text in ("\n".join(lines), "\n".join(lines[::-1])):
        file = write("sts-dev.csv", text + "\n")
        assert {label for _, label in plain(tables.read(file, ("5", "6", "4")))} == {"4.5", "3"}
    assert (
        "1 lines have more columns than the first line, which has 6 (first: "
        in capsys.readouterr().err
    )
    with pytest.raises(
        ConfigError, match="csv:2: 6 columns, but 8 in the first line; at least 7 are"
    ):
        tables.read(file, ("5", "6", "7"))
    header = write("a.tsv", "text\tlabel\textra\na\tx\nb\ty\tz\tz\n")
    assert [label for _, label in plain(tables.read(header, ("text", "label")))] == ["x", "y"]
    unlabelled = write("a.tsv", "a\tb\nc\td\tx\n")  # the label would be lost
    with pytest.raises(ConfigError, match="a.tsv:2: 3 columns, but 2 in the first line"):
        tables.read(unlabelled, ("1", "2", "3"))


@pytest.mark.parametrize("ids", ["{}", "dev-{:04}", "{:04x}1"])
def test_a_first_column_of_ids_or_numbers_is_refused_unless_columns_are_set(write, ids):
    rows = [(ids.format(i), f"Film {i} was good.", "pos") for i in range(9)]
    file = write("a.tsv", "\n".join(map("\t".join, rows)) + "\n")
    with pytest.raises(ConfigError, match=r"a\.tsv:1: the first column .*task\.columns=2,3, or ta"):
        tables.read(file, ())
    assert plain(tables.read(file, ("2", "3")))[1] == (("Film 1 was good.",), "pos")
    assert plain(tables.read(file, ("1", "2", "3")))[1][0] == rows[1][:2]  # any text is allowed
    file = write("b.tsv", "\n".join(f"{i % 2}\t{text}" for i, (_, text, _) in enumerate(rows)))
    with pytest.raises(
        ConfigError, match=r"b\.tsv:1: .* contains only numbers, .*task\.columns=2,1,"
    ):
        tables.read(file, ())


def test_sentences_with_numbers_are_not_mistaken_for_ids(write):
    """These first columns have a space, a text that ends without a number, or a repeated text."""
    for first in (("Film 1", "Film 2", "Film 3"), ("1", "2", "three"), ("a1", "a1", "a2")):
        file = write("a.tsv", "".join(f"{text}\tIt was good.\tpos\n" for text in first))
        assert [e.texts[0] for e in tables.read(file, ())] == list(first)


def test_a_tab_at_the_end_makes_the_columns_ambiguous(write):
    file = write("a.tsv", "It was good.\tpos\t\nIt was bad.\tneg\t\n")
    with pytest.raises(
        ConfigError, match=r"a\.tsv:1: the last column is empty .*columns=1,2 if .*columns=1,2,3 if"
    ):
        tables.read(file, ())
    assert plain(tables.read(file, ("1", "2")))[0] == (("It was good.",), "pos")
    assert plain(tables.read(file, ("1", "2", "3")))[0] == (("It was good.", "pos"), None)
    file = write("b.tsv", "A man.\tA boy.\t\nA cat.\tA dog.\tneutral\n")  # one line has a label
    assert [label for _, label in plain(tables.read(file, ()))] == [None, "neutral"]


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl"])
def test_a_column_may_have_another_name_in_another_file(tmp_path, suffix):
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
        (actual,) = tables.read(path, columns)
        assert actual.texts == ("A man sleeps.", "He rests.") and actual.label == "entailment"
    with pytest.raises(ConfigError, match="'text'"):
        tables.read(path, ("text|sentence", "sentence2", "label"))


def test_csv_is_read_with_or_without_a_header(write):
    content = 'id,premise,hypothesis,label\r\n1,"A man, ""old"", sits","He\nrests",1.0\n2,B,C,0.0\n'
    expected = [(('A man, "old", sits', "He\nrests"), "1"), (("B", "C"), "0")]
    for name in ("a.csv", "a.txt"):  # the requested column names identify CSV, too
        actual = tables.read(write(name, content), NAMED)
        assert plain(actual) == expected and actual[1].place.endswith(f"{name}:4")
    semicolons = write("b.csv", 'text;label\n"a; b, c";x\nd;y\n')
    assert plain(tables.read(semicolons, ("text", "label"))) == [(("a; b, c",), "x"), (("d",), "y")]
    bare = write("c.csv", '"a, b",c,x\nd,e,y\n')
    assert plain(tables.read(bare, ())) == [(("a, b", "c"), "x"), (("d", "e"), "y")]


def test_commas_do_not_separate_the_columns_of_a_table_with_tabs(write):
    for name in ("a.tsv", "a.csv"):
        assert plain(tables.read(write(name, "a, b, c\td\tx\n"), ())) == [(("a, b, c", "d"), "x")]
    assert plain(tables.read(write("a.tsv", "text\tlabel\na,label\tx\n"), ("text", "label"))) == [
        (("a,label",), "x")
    ]


@pytest.mark.parametrize(
    "content, columns, message",
    [
        ("premise,hypothesis,label\na,b\n", NAMED, "a.csv:2: 2 columns, but 3 in the first"),
        ('premise,hypothesis,label\n"a,b,c\nd,e,f\n', NAMED, "a.csv:2: not valid CSV"),
        ("first,second,label\na,b,x\n", (), "columns=first,second,label"),
        ("premise,label\na,x\n", NAMED, "a.csv:1: no column 'hypothesis'"),
        ("premise,hypothesis,label\n\na,b,x\n", NAMED, "a.csv:2: the line is empty"),
    ],
)
def test_invalid_csv_is_refused(write, content, columns, message):
    with pytest.raises(ConfigError, match=message):
        tables.read(write("a.csv", content), columns)


def test_labels_may_be_class_numbers(write):
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": 0.0}, {"text": "c", "label": -1}]
    file = write("a.json", "".join(json.dumps(row) + "\n" for row in rows))
    keys = ("text", "label")
    assert [label for _, label in plain(tables.read(file, keys))] == ["1", "0", "-1"]
    names = tables.read(file, keys, ("yes", "no"), ("no", "yes"))
    assert [label for _, label in plain(names)] == ["yes", "no", None]
    with pytest.raises(ConfigError, match="a.json:1: no class 1: task.names has 1 names"):
        tables.read(file, keys, (), ("no",))
    table = write("a.tsv", "a\t1.0\nb\t2.5\nc\t01\n")
    assert [label for _, label in plain(tables.read(table, ()))] == ["1", "2.5", "01"]
    assert plain(tables.read(table, (), ("1.0", "2.5")))[0][1] == "1.0"
    array = write("b.json", json.dumps([{"text": "a", "label": "x"}], indent=1))
    assert plain(tables.read(array, keys)) == [(("a",), "x")]


def test_parquet_files_are_read(tmp_path):
    import pyarrow.parquet

    pyarrow.parquet.write_table(
        pyarrow.table({"text": ["a", "b"], "label": [1, None]}), tmp_path / "a.parquet"
    )
    actual = tables.read(tmp_path / "a.parquet", ("text", "label"))
    assert plain(actual) == [(("a",), "1"), (("b",), None)]
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ConfigError, match="a.parquet: cannot be read as Parquet"):
        tables.read(tmp_path / "a.parquet", ("text", "label"))


@pytest.mark.parametrize(
    "content, proposed",
    [
        ("3,a b,c d\n4,e f,g h\n3,i j,k l\n", "2,3,1"),  # AG News
        ("4.5,a b,c d\n0.25,e f,g h\n1.0,i j,k l\n", "2,3,1"),
        ("7,a b,x\n8,c d,y\n9,e f,x\n", "2,3"),
    ],
)
def test_a_first_column_of_labels_or_scores_is_proposed_as_the_label(tmp_path, content, proposed):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(ConfigError, match=f"numbers, no sentences; .*task.columns={proposed}, or"):
        list(tables.read(tmp_path / "a.csv", ()))
