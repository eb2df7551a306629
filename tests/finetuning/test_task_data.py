"""Loading the data of a task: unlabelled examples, and training examples in other splits."""

import json
import shutil

import pytest

from xlj.config import ConfigError
from xlj.config.task import Task
from xlj.finetuning import task_data

SNLI = [("a", "neutral"), ("b", "entailment"), ("c", "-"), ("d", "neutral"), ("e", "-")]


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "dev.jsonl"
    records = [{"sentence1": text, "sentence2": "x", "gold_label": label} for text, label in SNLI]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def texts(task, split="test"):
    return [example.texts[0] for example in task_data._read(task)[split]["en"]]


def test_examples_without_a_label_are_skipped_by_choice_and_counted(file, capsys):
    with pytest.raises(ConfigError, match="dev.jsonl:3: .* task.malformed=skip skips"):
        texts(Task(kind="classification", test=(f"{file}",)))
    skip = Task(kind="classification", train=(f"{file}",), test=(f"{file}",), malformed="skip")
    assert texts(skip) == texts(skip, "train") == ["a", "b", "d"]
    assert f"skipped: no label: 2 (first: {file}:3)" in capsys.readouterr().err
    file.write_text("".join(line for line in file.open() if '"-"' in line))
    assert texts(Task(kind="classification", test=(f"{file}",), malformed="skip")) == ["c", "e"]
    assert "skipped" not in capsys.readouterr().err


CHOICES = {"premise": "p", "choices": ["a", "b"], "label": 1}
ANSWERS = {"text": ["c"], "answer_start": [0]}
QUESTION = {"id": "1", "question": "?", "context": "c", "answers": ANSWERS}


@pytest.mark.parametrize(
    "kind, record, unlabelled, what",
    [
        ("tagging", {"tokens": ["a"], "tags": ["O"]}, {"tags": None}, "tags"),
        ("regression", {"text": "a", "score": 1.5}, {"score": None}, "score"),
        ("multiple_choice", CHOICES, {"label": -1}, "label"),
        ("question_answering", QUESTION, {"id": "2", "answers": None}, "answers"),
    ],
)
def test_every_kind_skips_unlabelled_examples(tmp_path, capsys, kind, record, unlabelled, what):
    file = tmp_path / "a.jsonl"
    file.write_text(f"{json.dumps(record)}\n{json.dumps(record | unlabelled)}\n")
    (example,) = task_data._read(Task(kind=kind, test=(f"{file}",), malformed="skip"))["test"]["en"]
    assert example.labels is not None and example.where.startswith(f"{file}:1")
    assert f"skipped: no {what}: 1 (first: {file}:2)" in capsys.readouterr().err


def test_training_data_in_other_splits_is_a_warning(file, tmp_path, capsys):
    copy, other = tmp_path / "copy.jsonl", tmp_path / "other.jsonl"
    shutil.copy(file, copy)
    other.write_text(file.read_text().replace('"x"', '"y"'))
    for test, count in ((f"{file}", 3), (f"{tmp_path}/./dev.jsonl", 3), (f"{copy}", 3)):
        task = Task(kind="classification", train=(f"{file}",), test=(test,), malformed="skip")
        task_data._read(task)
        message = f"warning: {count} of the 3 examples of task.test in en are training data too"
        assert message in capsys.readouterr().err
    task = Task(kind="classification", train=(f"{file}",), dev=(f"{other}",), malformed="skip")
    task_data._read(task)
    assert "warning" not in capsys.readouterr().err
