"""Sentence pairs are read from files in all formats; errors name the file and the line."""

import gzip
import json
import re

import pytest

from xlj.config import ConfigError
from xlj.word_alignment.gold_alignments import parse
from xlj.word_alignment.sentence_pairs import Form, Pair, read, read_checked


def test_pairs_with_empty_sides_are_read(tmp_path):
    file = tmp_path / "pairs.tsv.gz"
    text = "A  b\tc\r\n\n\tonly target\nonly source\t\nd\te\tanything\tmore\n"
    file.write_bytes(gzip.compress(text.encode()))
    assert list(read(file)) == [
        Pair(f"{file}:1", ["A", "b"], ["c"]),
        Pair(f"{file}:2", [], []),
        Pair(f"{file}:3", [], ["only", "target"]),
        Pair(f"{file}:4", ["only", "source"], []),
        Pair(f"{file}:5", ["d"], ["e"]),
    ]


def test_a_header_is_skipped_and_gold_links_are_read(tmp_path):
    file = tmp_path / "gold.tsv"
    file.write_text("src\ttgt\tgold\nA b\tc\t0-0 1p0\nsrc\ttgt\t\n")
    first, second = read(file, with_gold=True)
    assert first.where == f"{file}:2" and first.gold == parse("0-0 1p0", "")
    assert second.source == ["src"] and second.gold == parse("", "")


@pytest.mark.parametrize(
    "content, with_gold, message",
    [
        (b"a\tb\njust one\n", False, "2: 1 columns; expected source and target"),
        (b"a\tb\t0-0\na\tb\n", True, "2: 2 columns; expected source, target and gold links"),
        (b"a\tb\t0-0\na\tb\t0:0\n", True, "2: '0:0' is not a link"),
        (b"a\tb\n\n\xff\tb\n", False, "3: the line is not UTF-8"),
    ],
)
def test_errors_name_file_and_line(tmp_path, content, with_gold, message):
    file = tmp_path / "pairs.tsv"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"pairs.tsv:{message}"):
        list(read(file, with_gold))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="none.tsv"):
        list(read(tmp_path / "none.tsv"))


def words(path, *form, **options):
    return [(pair.source, pair.target) for pair in read(path, form=Form(*form, **options))]


TWO = [(["the", "cat"], ["die", "Katze"]), (["yes"], ["ja"])]


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        (tmp_path / name).write_text(content, "utf-8")
        return tmp_path / name

    return write


def test_words_are_split_at_ascii_spaces_and_tabs(write):
    file = write("a.tsv", "10\u00a0000 x\u3000y \u2028 z\tcela coûte\n")
    assert words(file) == [(["10\u00a0000", "x\u3000y", "\u2028", "z"], ["cela", "coûte"])]
    unicode = words(file, words="whitespace")
    assert unicode == [(["10", "000", "x", "y", "z"], ["cela", "coûte"])]


def test_bars_separate_sides_as_in_fast_align(write):
    content = "the cat ||| die Katze\nyes ||| ja\n"
    assert words(write("a.txt", content)) == TWO
    assert words(write("b.txt", " ||| ja\nyes |||\n\na|||b ||| c\n")) == [
        ([], ["ja"]),
        (["yes"], []),
        ([], []),
        (["a|||b"], ["c"]),
    ]
    assert words(write("c.tsv", "a ||| b\tc\n")) == [(["a", "|||", "b"], ["c"])]
    with pytest.raises(ConfigError, match="a.txt:2: 1 columns; expected source and target"):
        words(write("a.txt", "a ||| b\njust one\n"))
    (pair,) = read(write("g.txt", "a b ||| c ||| 1-0\n"), with_gold=True)
    assert pair.gold == parse("1-0", "")


def test_two_parallel_files_are_read(write, tmp_path):
    write("a.en", "the cat\nyes\n"), write("a.de", "die Katze\nja\n")
    assert words(tmp_path / f"a.en|{tmp_path}/a.de") == TWO
    write("a.de", "die Katze\n")
    with pytest.raises(ConfigError, match="a.en and .*a.de have different numbers of lines"):
        words(tmp_path / f"a.en|{tmp_path}/a.de")


def test_columns_are_chosen_by_number_or_name(write):
    """As for WikiMatrix, which has a score in the first column."""
    content = "1.25\tthe cat\tdie Katze\n1.04\tyes\tja\n"
    file = write("a.tsv", content)
    assert words(file, ("2", "3")) == TWO
    assert words(file, ("3", "2")) == [(target, source) for source, target in TWO]
    with pytest.raises(ConfigError, match="1 numbers .1.04., 2 text .*--columns=2,3$"):
        words(file)
    assert words(file, ("1", "2"))[0] == (["1.25"], ["the", "cat"])
    named = write("b.tsv", "score\ten\tde\n" + content)
    assert words(named, ("en", "de")) == TWO
    with pytest.raises(ConfigError, match="b.tsv:1: .*en,fr names 'fr'.* are score, en, de"):
        words(named, ("en", "fr"))
    with pytest.raises(ConfigError, match="expected the columns of source and target"):
        words(named, ("en",))
    with pytest.raises(
        ConfigError, match="a.tsv:1: 3 columns; expected the columns of --columns=2,4"
    ):
        words(file, ("2", "4"))


TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en" datatype="PlainText"/><body>
<tu><tuv xml:lang="en-GB"><seg>the <bpt i="1">&lt;b&gt;</bpt><hi>cat</hi></seg></tuv>
<tuv xml:lang="de"><seg>die
Katze</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>ja</seg></tuv><tuv xml:lang="en-GB"><seg>yes</seg></tuv></tu>
</body></tmx>
"""


def test_tmx_files_are_read(write):
    for name in ("a.tmx", "a.xml"):
        assert words(write(name, TMX)) == TWO
    swapped = words(write("a.tmx", TMX), ("de", "en"))
    assert swapped == [(target, source) for source, target in TWO]
    assert words(write("a.tmx", TMX), ("en", "fr")) == [(source, []) for source, _ in TWO]
    three = TMX.replace("</tuv></tu>", '</tuv><tuv xml:lang="fr"><seg>x</seg></tuv></tu>', 1)
    with pytest.raises(ConfigError, match="a.tmx: set the two languages .*'en-GB', 'de', 'fr'"):
        words(write("a.tmx", three))
    assert words(write("a.tmx", three), ("en", "de")) == TWO
    for damaged in (TMX[:-9], TMX.replace("</hi>", ""), TMX.replace("UTF-8", "no-such")):
        with pytest.raises(ConfigError, match="a.tmx: not valid XML"):
            words(write("a.tmx", damaged))
    with pytest.raises(ConfigError, match="a.tmx has no translation unit"):
        words(write("a.tmx", "<tmx><body/></tmx>"))


def test_a_tmx_segment_may_nest_elements_to_any_depth(write):
    deep = f"<seg>the {'<hi>' * 3000}cat<ph>x</ph>{'</hi>' * 3000} sat</seg>"
    file = write("a.tmx", TMX.replace("<seg>yes</seg>", deep))
    assert words(file)[1] == (["the", "cat", "sat"], ["ja"])


def test_json_lines_are_read(write):
    rows = [{"translation": {"en": "the cat", "de": ["die", "Katze"]}}] * 2
    file = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert words(file, ("translation.en", "translation.de")) == TWO[:1] * 2
    with pytest.raises(ConfigError, match="a.jsonl:1: set --columns=.*keys are translation"):
        words(file)
    with pytest.raises(ConfigError, match="a.jsonl:1: translation.fr is None"):
        words(file, ("translation.en", "translation.fr"))


@pytest.mark.parametrize("name, format_name", [("a.csv", "CSV"), ("a.xlsx", "Excel")])
def test_errors_name_the_format_of_unsupported_files(write, name, format_name):
    with pytest.raises(ConfigError, match=f"{name}: this is {format_name}"):
        words(write(name, "a,b\n"))


def test_gold_links_outside_the_sentences_are_reported(write, capsys):
    pairs = write("a.tsv", "a b\tc d\na b\tc\n")
    for links, message in (
        ("0-0 1-1\n1-0\n", ""),
        ("1-1\n1-0\n", ""),
        ("1-1\n1-1\n", "1 of 2 gold links are outside .*a.tsv:2.*--gold_from=1"),
        ("1-1\n\n", "no gold link has a word 0; .*--gold_from=1"),
        ("2-2 1-1\n1-0\n", "1 of 3 gold links are outside .*a.tsv:1"),
    ):
        read_checked(pairs, f"{write('gold.txt', links)}")
        stderr = capsys.readouterr().err
        assert re.search(message, stderr) if message else not stderr
    read_checked(
        pairs,
        f"{write('gold.txt', '2-2 1-1' + chr(10) + '1-1 0-1' + chr(10))}",
        form=Form(gold_from=1),
    )
    assert capsys.readouterr().err.endswith("ignoring 1 links to NULL (word 0)\n")
    read_checked(pairs, f"{write('gold.wa', '1 1 1 S' + chr(10) + '2 2 1 S' + chr(10))}")
    assert not capsys.readouterr().err
