"""Gold alignments: both file formats, unusual links, and malformed lines."""

import numpy as np
import pytest

from xlj.config import ConfigError
from xlj.word_alignment.gold_alignments import Gold, parse, read, score


def gold(sure, possible=()):
    return Gold(frozenset(sure), frozenset(possible))


def test_a_line_of_links_is_parsed():
    assert parse("0-0 1p2 10-3 1p2", "here") == gold([(0, 0), (10, 3)], [(1, 2)])
    assert parse("  ", "here") == gold([])
    assert parse("21--100", "here") == gold([(21, -100)])


@pytest.mark.parametrize("text", ["0", "0-", "0-1-2", "a-b", "0-1,", "1.0-2", "0_1"])
def test_errors_of_malformed_links_name_the_place(text):
    with pytest.raises(ConfigError, match="mine.tsv:7: .* is not a link; expected i-j"):
        parse(f"0-0 {text}", "mine.tsv:7")


def test_a_file_with_lines_of_links_is_read(tmp_path):
    file = tmp_path / "gold.txt"
    file.write_text("\n0-0 1p1\n\n2-2\n")
    assert read(file) == [gold([]), gold([(0, 0)], [(1, 1)]), gold([]), gold([(2, 2)])]


def test_a_file_in_the_format_alignv2_is_read(tmp_path):
    file = tmp_path / "alignv2.txt"
    # Ids are names: 0007 appears first, and 3 is missing. A flag may be missing. Links outside the
    # sentences are not removed.
    file.write_text(
        "0007 1 1 S\n0007 2 3 P\n4 1 2\n0007 3 3 S\n\n178 22 -99 S\n178 400 1 S\n178 400 1 S\n"
    )
    assert read(file) == [
        gold([(0, 0), (2, 2)], [(1, 2)]),
        gold([(0, 1)]),
        gold([(21, -100), (399, 0)]),
    ]


@pytest.mark.parametrize("line", ["1 1", "1 1 1 X", "1 one 1", "1 1 1 S x", "1 2-2 S"])
def test_errors_of_malformed_alignv2_name_file_and_line(tmp_path, line):
    file = tmp_path / "alignv2.txt"
    file.write_text(f"1 1 1 S\n{line}\n")
    with pytest.raises(ConfigError, match=r"alignv2\.txt:2: .*; expected `id source target"):
        read(file)


def test_a_line_that_is_not_utf8_is_refused(tmp_path):
    file = tmp_path / "gold.txt"
    file.write_bytes(b"0-0\n\xff\n")
    with pytest.raises(ConfigError, match=r"gold\.txt:2: the line is not UTF-8"):
        read(file)


def test_links_to_null_are_ignored_and_counted(tmp_path):
    """Both sure and possible links, as in the scores of WPT 2003 without NULL links."""
    file = tmp_path / "gold.wa"
    file.write_text("1 2 1 S\n1 3 2 S\n1 1 0 S\n2 0 1 P\n")
    assert read(file) == [
        Gold(frozenset({(1, 0), (2, 1)}), frozenset(), 1),
        Gold(*[frozenset()] * 2, 1),
    ]
    assert read(file, first=0)[0] == gold([(2, 1), (3, 2), (1, 0)])


def test_the_error_rate_ignores_links_to_null(tmp_path):
    """Computed by hand, as by the script of WPT 2003 without NULL links: 1 - 2 * 2 / (3 + 2)."""
    file = tmp_path / "gold.wa"
    file.write_text("1 2 1 S\n1 3 2 S\n1 1 0 S\n")
    links = [np.array([[0, 0], [1, 0], [2, 1]])]
    assert score(links, read(file)).aer == pytest.approx(0.2)
    file.write_text("1 2 1 S\n1 3 2 S\n")
    assert score(links, read(file)).aer == pytest.approx(0.2)


def test_confidences_of_gold_links_are_ignored(tmp_path):
    file = tmp_path / "gold.wa"
    file.write_text("1 1 1 S 0.5\n1 2 1 P 1\n1 2 2 0.25e-3\n")
    assert read(file) == [gold([(0, 0), (1, 1)], [(1, 0)])]


def test_the_words_of_links_may_be_counted_from_1(tmp_path):
    file = tmp_path / "gold.txt"
    file.write_text("1-1 2p3 0-2\n\n")
    assert read(file, first=1) == [Gold(frozenset({(0, 0)}), frozenset({(1, 2)}), 1), gold([])]
    assert read(file) == [gold([(1, 1), (0, 2)], [(2, 3)]), gold([])]
