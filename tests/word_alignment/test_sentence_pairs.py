"""Sentence pairs of TSV files."""

import gzip

import pytest

from xlj.config import ConfigError
from xlj.word_alignment.gold_alignments import parse
from xlj.word_alignment.sentence_pairs import Pair, read


def test_pairs_words_and_blank_lines(tmp_path):
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


def test_header_and_gold(tmp_path):
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
        (b"a\tb\t0-0\na\tb\t0:0\n", True, "2: '0:0' is no link"),
        (b"a\tb\n\n\xff\tb\n", False, "3: the line is not UTF-8"),
    ],
)
def test_errors_name_file_and_line(tmp_path, content, with_gold, message):
    file = tmp_path / "pairs.tsv"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"pairs.tsv:{message}"):
        list(read(file, with_gold))


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="none.tsv"):
        list(read(tmp_path / "none.tsv"))
