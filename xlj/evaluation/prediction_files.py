"""Files of labels and predictions in XTREME's forms: a label, a tag or a pair a line; JSON."""

import itertools
import re
from pathlib import Path
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled import squad
from xlj.io import files, json_file
from xlj.io.quoting import quoted


class Form(NamedTuple):
    """The form of a line: a regular expression, and the same in words."""

    pattern: str
    words: str


def lines(path: Path, form: Form) -> list[str]:
    """The lines of a file, without blanks around them.

    Raises:
      ConfigError: if the file cannot be read, or a line is not UTF-8 or not of that form; the
        message names it.
    """
    found = list(map(str.strip, files.lines(path)))
    for number, line in enumerate(found, 1):
        if not re.fullmatch(form.pattern, line):
            raise ConfigError(f"{path}:{number}: {quoted(line)} is not {form.words}")
    return found


def labels(gold: Path, predicted: Path, form: Form) -> tuple[list[str], list[str]]:
    """A label a line, of both files; errors as of `lines`, or if they are not equally long."""
    return _equally_long(gold, lines(gold, form), predicted, lines(predicted, form))


def tags(gold: Path, predicted: Path, form: Form) -> tuple[list[list[str]], list[list[str]]]:
    """Tags by sentence, of both files: a tag a line, and a blank line after each sentence.

    Raises:
      ConfigError: as `labels`, and if sentences do not end in the same lines.
    """
    sides = _equally_long(gold, _tag_lines(gold, form), predicted, _tag_lines(predicted, form))
    for number, (truth, guess) in enumerate(zip(*sides, strict=True), 1):
        if bool(truth) != bool(guess):
            ends, goes_on = (gold, predicted) if guess else (predicted, gold)
            raise ConfigError(
                f"{predicted}:{number}: a sentence ends here in {ends}, but not in {goes_on}"
            )
    true, guessed = (
        [list(tags) for is_tag, tags in itertools.groupby(side, bool) if is_tag] for side in sides
    )
    return true, guessed


def pairs(path: Path) -> list[tuple[str, ...]]:
    """Pairs of ids, with a tab between; errors as of `lines`."""
    form = Form(r"[^\t]+\t[^\t]+", "a pair of ids with a tab between")
    return [tuple(line.split("\t")) for line in lines(path, form)]


def questions(path: Path) -> list[tuple[str, list[str]]]:
    """Ids and gold answers of the questions in a JSON file of SQuAD's layout; a ConfigError if it
    is no such file, or a question has no answer."""
    found = []
    for _, question, file, where in squad.walk(path):
        has_answers = isinstance(question, dict) and question.get("answers") is not None
        golds = [text for text, _ in squad.answers(question, file, where)] if has_answers else []
        if not golds:
            raise ConfigError(f"{file}: {where}: the question has no gold answer")
        found.append((squad.identity(question, file, where), golds))
    if not found:
        raise ConfigError(f"{path} holds no questions")
    return found


def answers(path: Path) -> dict[str, str]:
    """Answers by the question's id, a JSON object; a ConfigError if the file is none."""
    found = json_file.read(path)
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is no JSON object of answers by question id")
    for identity, answer in found.items():
        if not isinstance(answer, str):
            raise ConfigError(
                f"{path}: the answer to {quoted(identity)} is {quoted(answer)}, which is no text"
            )
    return found


def _equally_long(
    gold: Path, truths: list[str], predicted: Path, guesses: list[str]
) -> tuple[list[str], list[str]]:
    if not truths:
        raise ConfigError(f"{gold} is empty")
    if len(truths) != len(guesses):
        raise ConfigError(
            f"{predicted} has {len(guesses)} lines, but {gold} has {len(truths)}; line i of one "
            "must be the prediction for line i of the other"
        )
    return truths, guesses


def _tag_lines(path: Path, form: Form) -> list[str]:
    """Tags, and blank lines between sentences, none at the end."""
    found = lines(path, Form(f"(?:{form.pattern})?", form.words))
    while found and not found[-1]:
        found.pop()
    return found
