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
    """The format of a line: a regular expression, and its description for error messages."""

    pattern: str
    words: str


def lines(path: Path, form: Form) -> list[str]:
    """Returns the lines of a file, stripped of surrounding whitespace.

    Raises:
      ConfigError: if the file cannot be read, or a line is not UTF-8 or does not match the form.
        The message names the line.
    """
    stripped = list(map(str.strip, files.lines(path)))
    for number, line in enumerate(stripped, 1):
        if not re.fullmatch(form.pattern, line):
            raise ConfigError(f"{path}:{number}: {quoted(line)} is not {form.words}")
    return stripped


def labels(gold: Path, predicted: Path, form: Form) -> tuple[list[str], list[str]]:
    """Returns the labels of both files, which have one label per line.

    Raises:
      ConfigError: as `lines`, or if the files have different numbers of lines.
    """
    return _check_lengths(gold, lines(gold, form), predicted, lines(predicted, form))


def tags(gold: Path, predicted: Path, form: Form) -> tuple[list[list[str]], list[list[str]]]:
    """Returns the tags of both files by sentence.

    The files have one tag per line and a blank line after each sentence.

    Raises:
      ConfigError: as `labels`, or if sentences do not end on the same lines.
    """
    sides = _check_lengths(gold, _tag_lines(gold, form), predicted, _tag_lines(predicted, form))
    for number, (truth, guess) in enumerate(zip(*sides, strict=True), 1):
        if bool(truth) != bool(guess):
            ends, continues = (gold, predicted) if guess else (predicted, gold)
            raise ConfigError(
                f"{predicted}:{number}: a sentence ends on this line in {ends}, but not in "
                f"{continues}"
            )
    true, guessed = (
        [list(tags) for is_tag, tags in itertools.groupby(side, bool) if is_tag] for side in sides
    )
    return true, guessed


def pairs(path: Path) -> list[tuple[str, ...]]:
    """Returns the pairs of ids of a file, one pair per line, separated by a tab.

    Raises:
      ConfigError: as `lines`.
    """
    form = Form(r"[^\t]+\t[^\t]+", "a pair of ids separated by a tab")
    return [tuple(line.split("\t")) for line in lines(path, form)]


def questions(path: Path) -> list[tuple[str, list[str]]]:
    """Returns the ids and gold answers of the questions in a JSON file with SQuAD's layout.

    Raises:
      ConfigError: if the file has another layout, or a question has no answer.
    """
    result = []
    for _, question, file, where in squad.iterate_questions(path):
        has_answers = isinstance(question, dict) and question.get("answers") is not None
        golds = [text for text, _ in squad.parse_answers(question, file, where)] if has_answers else []
        if not golds:
            raise ConfigError(f"{file}: {where}: the question has no gold answer")
        result.append((squad.read_id(question, file, where), golds))
    if not result:
        raise ConfigError(f"{path}: the file has no questions")
    return result


def answers(path: Path) -> dict[str, str]:
    """Returns answers by question id from a JSON object.

    Raises:
      ConfigError: if the file is not a JSON object, or an answer is not a string.
    """
    content = json_file.read(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a JSON object of answers by question id")
    for identity, answer in content.items():
        if not isinstance(answer, str):
            raise ConfigError(
                f"{path}: the answer to {quoted(identity)} is {quoted(answer)}; expected a string"
            )
    return content


def _check_lengths(
    gold: Path, truths: list[str], predicted: Path, guesses: list[str]
) -> tuple[list[str], list[str]]:
    if not truths:
        raise ConfigError(f"{gold} is empty")
    if len(truths) != len(guesses):
        raise ConfigError(
            f"{predicted} has {len(guesses)} lines, but {gold} has {len(truths)}; each line must "
            "be the prediction for the same line of the labels"
        )
    return truths, guesses


def _tag_lines(path: Path, form: Form) -> list[str]:
    """Returns tags and the blank lines between sentences, without blank lines at the end."""
    result = lines(path, Form(f"(?:{form.pattern})?", form.words))
    while result and not result[-1]:
        result.pop()
    return result
