"""Errors quote no more of a file than one can read."""

import pytest

from xlj.config import ConfigError
from xlj.evaluation import prediction_files
from xlj.io.quoting import shortened
from xlj.retrieval import sentence_files
from xlj.word_alignment import gold_alignments


def test_what_is_short_stays():
    assert shortened("a" * 200) == "a" * 200
    assert shortened("a" * 3000) == "a" * 200 + "... (3,000 characters)"


@pytest.mark.parametrize(
    "read",
    [
        lambda path: gold_alignments.read(path),
        lambda path: gold_alignments.parse(path.read_text(), "here"),
        lambda path: sentence_files.read_places(path, 1, 1),
        lambda path: prediction_files.lines(path, prediction_files.Form("a", "an a")),
    ],
)
def test_a_long_line_is_quoted_in_part(tmp_path, read):
    path = tmp_path / "lines"
    path.write_text("x" * 1_000_000 + "\n")
    with pytest.raises(ConfigError) as error:
        read(path)
    assert "xxx... (1,000,00" in str(error.value) and len(str(error.value)) < 500
