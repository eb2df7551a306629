"""Reads files of labels and predictions in XTREME's formats."""

import itertools
import re
from pathlib import Path
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled import squad
from xlj.io import files, json_file
from xlj.io.quoting import quoted


class Form(NamedTuple):
    """The format of a line: a regular expression, and a description for error messages."""

    pattern: str
    words: str


def lines(path: Path, form: Form) -> list[str]:
    """Returns the lines of a file, stripped of surrounding whitespace.

    Raises:
      ConfigError: if the file cannot be read, or a line is not UTF-8 or does not match `form`. The
        message names the line.
    """
    stripped = list(map(str.strip, files.lines(path)))
    for number, line in enumerate(stripped, 1):
        if not re.fullmatch(form.pattern, line):
            raise ConfigError(f"{path}:{number}: {quoted(line)}; expected {form.words}")
    return stripped


def labels(gold: Path, predicted: Path, form: Form) -> tuple[list[str], list[str]]:
    """Returns the labels of two files with one label per line.

    Raises:
      ConfigError: if a file cannot be read, a line does not match `form`, the gold file is empty,
        or the files have different numbers of lines.
    """
    return _check_lengths(gold, lines(gold, form), predicted, lines(predicted, form))


def tags(gold: Path, predicted: Path, form: Form) -> tuple[list[list[str]], list[list[str]]]:
    """Returns the tags of two files by sentence.

    The files have one tag per line and a blank line after each sentence.

    Raises:
      ConfigError: if a file cannot be read, a line does not match `form`, the gold file is empty,
        the files have different numbers of lines, or a sentence ends in one file only.
    """
    sides = _check_lengths(gold, _tag_lines(gold, form), predicted, _tag_lines(predicted, form))
    for number, (gold_tag, predicted_tag) in enumerate(zip(*sides, strict=True), 1):
        if bool(gold_tag) != bool(predicted_tag):
            ends, continues = (gold, predicted) if predicted_tag else (predicted, gold)
            raise ConfigError(
                f"{predicted}:{number}: a sentence ends on this line in {ends}, but not in "
                f"{continues}; expected blank lines on the same lines"
            )
    gold_tags, predicted_tags = (
        [list(tags) for is_tag, tags in itertools.groupby(side, bool) if is_tag] for side in sides
    )
    return gold_tags, predicted_tags


def pairs(path: Path) -> list[tuple[str, ...]]:
    """Returns the pairs of ids in a file, one pair per line, separated by a tab.

    Raises:
      ConfigError: if the file cannot be read, or a line is not a pair.
    """
    form = Form(r"[^\t]+\t[^\t]+", "a pair of ids separated by a tab")
    return [tuple(line.split("\t")) for line in lines(path, form)]


def questions(path: Path) -> list[tuple[str, list[str]]]:
    """Returns the id and the gold answers of each question in a JSON file with SQuAD's layout.

    Raises:
      ConfigError: if the file has another layout or no questions, or a question has no answer.
    """
    result = []
    for _, question, file, where in squad.iterate_questions(path):
        has_answers = isinstance(question, dict) and question.get("answers") is not None
        golds = (
            [text for text, _ in squad.parse_answers(question, file, where)] if has_answers else []
        )
        if not golds:
            raise ConfigError(
                f"{file}: {where}: the question has no gold answer; scoring needs at least one"
            )
        result.append((squad.read_id(question, file, where), golds))
    if not result:
        raise ConfigError(f"{path}: the file has no questions; expected SQuAD's layout")
    return result


def answers(path: Path) -> dict[str, str]:
    """Reads a JSON object that maps the ids of questions to answers.

    Raises:
      ConfigError: if the file is not a JSON object, or an answer is not a string.
    """
    content = json_file.read(path)
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path}: expected a JSON object that maps the ids of questions to answers"
        )
    for identity, answer in content.items():
        if not isinstance(answer, str):
            raise ConfigError(
                f"{path}: the answer to {quoted(identity)} is {quoted(answer)}; expected a string"
            )
    return content


def _check_lengths(
    gold: Path, gold_lines: list[str], predicted: Path, predicted_lines: list[str]
) -> tuple[list[str], list[str]]:
    if not gold_lines:
        raise ConfigError(f"{gold} is empty; expected gold labels")
    if len(gold_lines) != len(predicted_lines):
        raise ConfigError(
            f"{predicted} has {len(predicted_lines)} lines, but {gold} has {len(gold_lines)}; "
            "expected one prediction for each gold label, on the same line"
        )
    return gold_lines, predicted_lines


def _tag_lines(path: Path, form: Form) -> list[str]:
    """Returns the lines of a file with tags and blank lines, without blank lines at the end."""
    result = lines(path, Form(f"(?:{form.pattern})?", form.words))
    while result and not result[-1]:
        result.pop()
    return result
