"""Questions in SQuAD's JSON: SQuAD 1.1 and 2.0, XQuAD, MLQA, TyDiQA-GoldP."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from xlj.config import ConfigError
from xlj.data.labelled.examples import Example, Question
from xlj.io import json_file
from xlj.io.quoting import quoted, shortened
from xlj.io.storage import AnyPath


def walk(path: AnyPath) -> Iterator[tuple[Any, Any, str]]:
    """(paragraph, question, place of the question), of each question in order, as JSON has them; a
    `ConfigError` if the file cannot be read or is not laid out so."""
    for article, at in json_file.items(path, json_file.read(path), "data", ""):
        for paragraph, within in json_file.items(path, article, "paragraphs", at):
            for question, where in json_file.items(path, paragraph, "qas", within):
                yield paragraph, question, where


def read(path: AnyPath) -> list[Question]:
    """The questions of a file.

    `answers` may be missing or one empty text, as in XTREME's test files: then they are not told.
    They are empty where SQuAD 2.0 says `is_impossible`; `plausible_answers` are not read.

    Raises:
      ConfigError: if the file cannot be read, or an answer is not where it is said to be; with
        file, place and question.
    """
    return unique(_question(path, *entry) for entry in walk(path))


def check(question: Question) -> Question:
    """The question itself, if the context has its answers where they are said to be. Answers that
    are all empty texts are not told.

    Raises:
      ConfigError: if an answer is somewhere else or nowhere; it names the nearest place that fits.
    """
    if not question.answers:
        return question
    if not any(text for text, _ in question.answers):
        return dataclasses.replace(question, answers=None)
    context = question.context
    for text, start in question.answers:
        if text and start >= 0 and context.startswith(text, start):
            continue
        places = [match.start() for match in re.finditer(re.escape(text), context)] if text else []
        mend = f"; it is at {min(places, key=lambda at: abs(at - start))}" if places else ""
        there = context[max(start, 0) : max(start, 0) + len(text)]
        raise ConfigError(
            f"{question.place} (question {shortened(question.identity)}): the answer "
            f"{quoted(text)} should be at character {quoted(start)} of the context, where "
            f"there is {quoted(there)}{mend}"
        )
    return question


def unique(questions: Iterable[Question]) -> list[Question]:
    """The questions with identities of their own.

    XTREME's training files of TyDiQA keep only the last part of each id, so that many questions
    share one: the later ones become `ID#2`, `ID#3` and so on. Where question and context are the
    same too, it is one question, and the later entry brings further answers (XTREME's
    translated files have an entry an answer).
    """
    found: dict[str, Question] = {}
    names: dict[tuple[str, str, str], str] = {}
    repeats: Counter[str] = Counter()
    for new in questions:
        key = new.identity, new.question, new.context
        if key in names:
            old = found[names[key]]
            answers = tuple(dict.fromkeys([*(old.answers or ()), *(new.answers or ())]))
            found[names[key]] = dataclasses.replace(old, answers=answers or old.answers)
            continue
        name = new.identity
        while name in found:
            repeats[new.identity] += 1
            name = f"{new.identity}#{repeats[new.identity] + 1}"
        names[key] = name
        found[name] = dataclasses.replace(new, identity=name)
    return list(found.values())


def distinct(examples: Iterable[Example]) -> list[Example]:
    """Examples that come together from several sources: questions with identities of their own, as
    `unique` makes them; other examples have none, and stay."""
    found = list(examples)
    questions = [example for example in found if isinstance(example, Question)]
    return [*unique(questions)] if questions else found


def _question(path: AnyPath, paragraph: Any, entry: Any, where: str) -> Question:
    question = Question(
        identity=json_file.text(path, entry, "id", where),
        question=json_file.text(path, entry, "question", where),
        context=json_file.text(path, paragraph, "context", where.rpartition(".")[0]),
        answers=tuple(_answers(path, entry, where)) if "answers" in entry else None,
        place=f"{path}: {where}",
    )
    question = check(question)
    if not entry.get("is_impossible"):
        return question
    if question.answers:
        raise ConfigError(
            f"{question.place} (question {shortened(question.identity)}): is_impossible, but it "
            "has answers"
        )
    return dataclasses.replace(question, answers=())


def _answers(path: AnyPath, entry: Any, at: str) -> Iterator[tuple[str, int]]:
    for answer, where in json_file.items(path, entry, "answers", at):
        text = json_file.text(path, answer, "text", where)
        start = answer.get("answer_start")
        if not isinstance(start, int) or isinstance(start, bool):
            raise ConfigError(f"{path}: {where}.answer_start is {quoted(start)}, no whole number")
        yield text, start
