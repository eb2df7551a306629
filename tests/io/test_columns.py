"""Columns of numbers, ids, URLs and codes are no sentences; ranges join lines."""

import pytest

from xlj.config import ConfigError
from xlj.io import columns
from xlj.io.malformed import Skipping

PAIRS = [("The cat sleeps.", "Die Katze schläft."), ("Good morning!", "Guten Morgen!")]


def table(*others, order):
    """Lines whose columns are chosen by a letter: s, t for the sides, or the index of a column."""
    sides = {"s": [a for a, _ in PAIRS], "t": [b for _, b in PAIRS]}
    sides |= {f"{k}": list(column) for k, column in enumerate(others)}
    return ["\t".join(row) for row in zip(*(sides[name] for name in order), strict=True)]


NUMBERS, FLOATS, DATES = ("17", "4"), ("1.0712", "9e-05"), ("2010-05-21 13:03", "\\N")
IDS, VERSES, CODES, SCRIPTS = (
    ("de-01", "de-02"),
    ("GEN 1:1", "GEN 1:2"),
    ("en", "en"),
    ("deu_Latn",) * 2,
)
URLS = ("https://a.org/x", "http://b.org/y?z=1")


@pytest.mark.parametrize(
    "kind, cells",
    [
        ("numbers", NUMBERS),
        ("numbers", FLOATS),
        ("numbers", DATES),
        ("ids", IDS),
        ("ids", VERSES),
        ("URLs", URLS),
        ("language codes", CODES),
        ("language codes", SCRIPTS),
    ],
)
def test_the_only_column_of_text_is_read_and_named(kind, cells, capsys):
    for order, at in (("0s", 1), ("s0", 0), ("0s0", 1)):
        layout = columns.find_sentences(table(cells, order=order), "f", columns.Choice())
        assert layout == columns.Layout((at,), len(order)), order
        printed = capsys.readouterr().err
        assert f"f: its columns are 1 {'text' if at == 0 else kind} (" in printed
        assert printed.endswith(f"; reading --columns={at + 1}\n")
    with pytest.raises(ConfigError, match=f"f: .* 1 {kind} .*such as x.txt#2$"):
        choice = columns.Choice((), "x.txt#", "|")
        columns.find_sentences(table(cells, order="0s"), "f", choice, is_automatic=False)
    with pytest.raises(ConfigError, match=f"1 {kind} .*2 text .* 3 text .*--columns=2,3$"):
        columns.find_pairs(table(cells, order="0st"), "f", columns.Choice())
    with pytest.raises(ConfigError, match=f"1 text .*2 {kind} .*--columns=SOURCE,TARGET$"):
        columns.find_pairs(table(cells, order="s0"), "f", columns.Choice())
    with pytest.raises(ConfigError, match=rf"3 {kind} .*x.tsv#1\|2$"):
        columns.find_pairs(
            table(cells, order="st0"), "f", columns.Choice((), "x.tsv#", "|"), is_exact=True
        )
    assert columns.find_pairs(table(cells, order="st0"), "f", columns.Choice()).indices == (0, 1)


@pytest.mark.parametrize(
    "lines",
    [
        ["cat\tKatze", "dog\tHund", "cat\tKater"],
        ["the\tdie"],
        ["covid19\tKovid", "covid19\tCOVID"],
        ["12 apples\t12 Äpfel", "3 men\t3 Männer"],
        ["第1章\tChapter 1", "第2章\tChapter 2"],
        ["Yes\tJa", "No\tNein", "1984\tneunzehn"],
        ["Yes.\tJa, sicher.", "Yes.\tJa doch.", "No!\tOh nein!", "No!\tNein, nie!"],
    ],
)
def test_text_with_digits_and_short_words_is_text(lines):
    assert columns.find_pairs(lines, "f", columns.Choice()) == columns.Layout((0, 1))
    whole = columns.find_sentences(lines, "f", columns.Choice(), is_automatic=False)
    assert whole == columns.WHOLE_LINES


def test_tatoebas_four_columns_and_a_header_are_recognised(capsys):
    four = table(NUMBERS, ("8", "9"), order="0s1t")
    with pytest.raises(ConfigError, match="--columns=2,4$"):
        columns.find_pairs(four, "f", columns.Choice())
    chosen = columns.find_pairs(four, "f", columns.Choice(("2", "4")))
    assert [chosen.texts(line.split("\t")) for line in four] == [list(pair) for pair in PAIRS]
    named = ["id\tlang\tsentence", *table(NUMBERS, CODES, order="01s")]
    layout = columns.find_sentences(named, "f", columns.Choice(), with_ids=True)
    assert layout == columns.Layout((0, 2), 3, has_header=True)
    note = "reading --columns=1,3, without the names of columns in line 1\n"
    assert capsys.readouterr().err.endswith(note)
    scored = ["source\ttarget\tscore", *table(("1", "2"), order="st0")]
    assert columns.find_pairs(scored, "g", columns.Choice()) == columns.Layout((0, 1), 0, True)
    assert "without the names of columns in line 1" in capsys.readouterr().err
    assert not columns.find_pairs(["", *scored], "g", columns.Choice()).has_header
    by_name = columns.find_sentences(named, "f", columns.Choice(("sentence",)))
    assert by_name == columns.Layout((2,), has_header=True)
    with pytest.raises(ConfigError, match="f:1: --columns=text names 'text', but .*lang, sentence"):
        columns.find_sentences(named, "f", columns.Choice(("text",)))


def test_codes_are_repeated_or_known_and_beside_ids():
    def kinds(*rows):
        with pytest.raises(ConfigError) as error:
            columns.find_pairs(rows, "f", columns.Choice())
        return [part.split(" (")[0] for part in str(error.value).split("are ")[1].split("), ")]

    assert (
        kinds("7\teng\tyes")[1] == kinds("7\teng_Latn\tyes", "8\tar\tyes")[1] == "2 language codes"
    )
    assert kinds("7\tone\tzwei", "8\ttwo\tdrei")[1] == "2 text"
    assert kinds("tlh\tja nein\tyes", "tlh\tx y\tno")[0] == "1 language codes"


def test_a_scores_column_is_no_id_and_odd_lines_do_not_change_the_columns(tmp_path, capsys):
    assert columns.find_sentences(
        table(FLOATS, order="0s"), "f", columns.Choice(), with_ids=True
    ).indices == (1,)
    file = tmp_path / "a.txt"
    lines = [f"{k}\tsentence number {k}" for k in range(250)]
    lines[3], lines[5], lines[240] = "a stray line", "", "240\twith\ttabs"
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match="a.txt:4: the line has 1 columns; expected 2 columns"):
        list(columns.open_lines(file)[1])
    skipping = Skipping("skip")
    texts = list(columns.open_lines(file, skipping=skipping)[1])
    expected = [f"sentence number {k}" for k in range(250)]
    expected[3] = expected[5] = expected[240] = ""
    assert texts == expected and skipping.rows == [3, 240]


def test_a_file_of_numbers_is_read_with_a_warning(tmp_path, capsys):
    (tmp_path / "scores").write_text("0.5\n0.75\n")
    assert list(columns.open_lines(tmp_path / "scores")[1]) == ["0.5", "0.75"]
    assert "scores: its columns are 1 numbers (0.75), not sentences" in capsys.readouterr().err


def test_ranges_join_rows_to_the_row_before():
    r = columns.RANGE
    rows = [[r, "x"], ["a", "b"], ["c", r], ["d", "e"], [r, "f"], [r, ""], ["g", "h"], [r, r]]
    joined = [["", "x"], ["a c", "b"], ["", ""], ["d", "e f"], ["", ""], ["", ""]]
    assert list(map(list, columns.join_ranges(rows))) == [*joined, ["g", "h"], ["", ""]]


SENTENCES = [*PAIRS, ("It rains.", "Es regnet."), ("Where is she?", "Wo ist sie?")]


@pytest.mark.parametrize(
    "kind, cells",
    [
        ("ids", ("doc1", "doc1", "doc2", "doc2")),
        ("ids", ("Genesis 1:1", "Genesis 1:2", "1 Kings 2:3", "1 Kings 2:4")),
        ("labels", ("news", "ted", "news", "ted")),
        ("empty", ("", "\\N", "", "NaN")),
    ],
)
def test_repeated_ids_labels_and_nothing_beside_sentences_are_no_text(kind, cells):
    lines = ["\t".join((cell, *pair)) for cell, pair in zip(cells, SENTENCES, strict=True)]
    with pytest.raises(ConfigError, match=f"1 {kind} .*--columns=2,3$"):
        columns.find_pairs(lines, "f", columns.Choice())
    mono = [f"{cell}\t{pair[0]}" for cell, pair in zip(cells, SENTENCES, strict=True)]
    layout = columns.find_sentences([f"{line}\t\\N" for line in mono], "f", columns.Choice())
    assert layout == columns.Layout((1,), 3)


def test_a_first_line_with_a_cell_of_a_later_line_is_no_header():
    for lines in (["s1\tA", "s1\tA", "s2\tB"], ["s1\tA", "s2\tB", "s1\tC"]):
        layout = columns.find_sentences(lines, "f", columns.Choice(), with_ids=True)
        assert not layout.has_header
    named = ["name\tword", "s1\tA", "s2\tB"]
    assert columns.find_sentences(named, "f", columns.Choice(), with_ids=True).has_header


def test_names_of_sides_are_a_header_and_other_single_words_a_doubt(capsys):
    lines = ["\t".join(pair) for pair in SENTENCES]
    for header in ("en\tde", "eng_Latn\tdeu_Latn", "Source\tTarget", "sentence1\tsentence2"):
        layout = columns.find_pairs([header, *lines], header, columns.Choice())
        assert layout == columns.Layout((0, 1), 0, True), header
    assert "without the names of columns in line 1\n" in capsys.readouterr().err
    for first in ("no\tno", "en\tKatze", "Hello\tde"):
        assert not columns.find_pairs([first, *lines], first, columns.Choice()).has_header
    words = ["en\tin", "es\tit", "du\tyou", "es\tshe"]
    assert not columns.find_pairs(words, "f", columns.Choice()).has_header
    capsys.readouterr()
    doubtful = ["English\tGerman", *(line for line in lines if "rains" not in line)]
    assert not columns.find_pairs(doubtful, "g", columns.Choice()).has_header
    warning = "warning: g:1: read as a pair; if these are names of columns, set "
    assert capsys.readouterr().err == f"{warning}--columns=English,German\n"
