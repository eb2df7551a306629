"""Files of labels and predictions are read; errors name the file and the line."""

import json

import pytest

from xlj.config import ConfigError
from xlj.evaluation import prediction_files
from xlj.evaluation.prediction_files import Form

LETTERS = Form("[a-z]+", "a word of small letters")


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        file = tmp_path / name
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    return write


def test_labels_are_read(write):
    gold, predicted = write("gold", b"\xef\xbb\xbfa\r\nb \n"), write("predicted", "b\nb")
    assert prediction_files.labels(gold, predicted, LETTERS) == (["a", "b"], ["b", "b"])


@pytest.mark.parametrize(
    "gold, predicted, message",
    [
        ("a\nb\n", "a\n", "predicted has 1 lines, but .*gold has 2"),
        ("a\nb\n", "a\nB\n", r"predicted:2: 'B'; expected a word of small letters"),
        ("a\n\nb\n", "a\na\nb\n", "gold:2: ''; expected a word of small letters"),
        ("a\nb\n", b"a\n\xff\n", "predicted:2: the line is not UTF-8"),
        ("", "", "gold is empty"),
        ("a\n", None, "predicted: cannot read this file"),
    ],
)
def test_invalid_or_mismatched_labels_are_refused(write, tmp_path, gold, predicted, message):
    gold = write("gold", gold)
    predicted = tmp_path / "predicted" if predicted is None else write("predicted", predicted)
    with pytest.raises(ConfigError, match=message):
        prediction_files.labels(gold, predicted, LETTERS)


def test_tags_are_read(write):
    gold, predicted = write("gold", "a\nb\n\nc\n"), write("predicted", "x\ny\n\nz\n\n\n")
    assert prediction_files.tags(gold, predicted, LETTERS) == (
        [["a", "b"], ["c"]],
        [["x", "y"], ["z"]],
    )


@pytest.mark.parametrize(
    "predicted, message",
    [
        ("a\nb\nc\nd\n", "predicted:3: a sentence ends on this line in .*gold, but .* .*predicted"),
        ("a\n\nc\nd\n", "predicted:2: a sentence ends on this line in .*predicted, but .* .*gold"),
        ("a\nb\n\n", "predicted has 2 lines, but .*gold has 4"),
        ("a\nb\n\nD\n", "predicted:4: 'D'; expected a word of small letters"),
    ],
)
def test_invalid_or_mismatched_tags_are_refused(write, predicted, message):
    with pytest.raises(ConfigError, match=message):
        prediction_files.tags(write("gold", "a\nb\n\nd\n"), write("predicted", predicted), LETTERS)


def test_pairs_are_read(write):
    assert prediction_files.pairs(write("pairs", "a\tb\nc 1\td\n")) == [("a", "b"), ("c 1", "d")]
    assert prediction_files.pairs(write("none", "")) == []
    for line in ("a", "a\tb\tc", ""):
        with pytest.raises(ConfigError, match="wrong:2: .*; expected a pair of ids"):
            prediction_files.pairs(write("wrong", f"a\tb\n{line}\na\tb\n"))


def squad(*qas):
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "", "qas": qas}]}]}


def question(identity, *texts):
    answers = [{"text": text, "answer_start": 0} for text in texts]
    return {"id": identity, "question": "?", "answers": answers}


def test_questions_and_answers_are_read(write):
    gold = write("gold", squad(question("1", "x", "y"), question("2", "z")))
    assert prediction_files.questions(gold) == [("1", ["x", "y"]), ("2", ["z"])]
    assert prediction_files.answers(write("predicted", {"1": "x", "2": ""})) == {"1": "x", "2": ""}


@pytest.mark.parametrize(
    "content, message",
    [
        ('{\n"data": [\n}', "gold:3: not valid JSON"),
        ({}, "no list data"),
        ({"data": []}, "gold: the file has no questions"),
        ({"data": [{}]}, r"no list data\[0\]\.paragraphs"),
        ({"data": [{"paragraphs": [{"qas": 3}]}]}, r"no list data\[0\]\.paragraphs\[0\]\.qas"),
        (squad(question("1")), r"qas\[0\]: the question has no gold answer"),
        (squad(question("1", "x"), question([], "x")), r"qas\[1\]\.id is \[\], expected a text"),
        (squad(question("1", None)), r"answers\[0\]\.text is None, expected a text"),
    ],
)
def test_malformed_questions_are_refused(write, content, message):
    with pytest.raises(ConfigError, match=message):
        prediction_files.questions(write("gold", content))


@pytest.mark.parametrize(
    "content, message",
    [
        ("{'a': 1}", "predicted:1: not valid JSON"),
        (["x"], "predicted: expected a JSON object"),
        ({"1": "x", "2": ["y"]}, "the answer to '2' is .*; expected a string"),
    ],
)
def test_malformed_answers_are_refused(write, content, message):
    with pytest.raises(ConfigError, match=message):
        prediction_files.answers(write("predicted", content))
