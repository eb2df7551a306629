"""Errors quote only a short part of a long line."""

import json

import pytest

from xlj.config import ConfigError
from xlj.data.labelled import conll, squad, tables
from xlj.evaluation import prediction_files
from xlj.evaluation.prediction_files import Form
from xlj.interop import vocabulary_matching
from xlj.retrieval import sentence_files
from xlj.word_alignment import gold_alignments, sentence_pairs

LONG = "long" * 200_000


def question(**more):
    known = {"id": "1", "question": "?", "answers": [{"text": "x", "answer_start": 0}], **more}
    return json.dumps({"data": [{"paragraphs": [{"context": LONG, "qas": [known]}]}]})


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (f"w\tX\n{LONG}\ty\tz\n", lambda path: conll.read(path, "en", ())),
        (f"1\tw{9 * chr(9)}\n{LONG}\tw{9 * chr(9)}\n", lambda path: conll.read(path, "en", ())),
        (f"w N\n\n# {LONG}\n", lambda path: conll.read(path, "en", ())),
        (f"{LONG}\tb\n1\t2\n", lambda path: tables.read(path, ("a", "b"))),
        (json.dumps({LONG: "x"}), lambda path: tables.read(path.rename("a.jsonl"), ("a", "b"))),
        (json.dumps({"a": [LONG]}), lambda path: tables.read(path.rename("a.jsonl"), ("a", "b"))),
        (question(id=LONG), squad.read),
        (question(answers=[{"text": LONG[1:], "answer_start": 10**200}]), squad.read),
        (question(question=[LONG]), squad.read),
        (question(answers=[{"text": "x", "answer_start": LONG}]), squad.read),
        (
            f"{LONG} {LONG[:9]} a\n",
            lambda path: vocabulary_matching.read_dictionaries(path, "en-de"),
        ),
        (f"0-0 {LONG}\n", gold_alignments.read),
        (f"0-{'1' * 10_000}\n", gold_alignments.read),
        (f"1 1 1\n{LONG}\n", gold_alignments.read),
        (f"1 1 {'1' * 10_000}\n", gold_alignments.read),
        (f"a\tb\t{LONG}\n", lambda path: list(sentence_pairs.read(path, with_gold=True))),
        (f"{LONG}\tb\n{LONG}\tc\n", sentence_files.read_with_ids),
        (f"{LONG}\n", lambda path: sentence_files.read_indices(path, 1, 1)),
        (f"{'1' * 10_000}\n", lambda path: sentence_files.read_indices(path, 1, 1)),
        (f"{LONG}\tb\n", lambda path: sentence_files.read_pairs(path, ["a"], ["b"])),
        (f"{LONG}\n", lambda path: prediction_files.lines(path, Form("[01]", "0 or 1"))),
        (json.dumps({LONG: [LONG]}), prediction_files.answers),
    ],
)
def test_errors_quote_only_a_short_part_of_a_long_line(tmp_path, monkeypatch, content, read):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text(content)
    with pytest.raises(ConfigError, match=r"^\S*\ba(\.jsonl)?:") as caught:
        read(tmp_path / "a")
    assert len(str(caught.value)) < 1000 and "\n" not in str(caught.value)
