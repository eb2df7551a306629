"""Reads questions in SQuAD's JSON: SQuAD 1.1 and 2.0, XQuAD, MLQA, TyDiQA-GoldP."""

import dataclasses
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from xlj.config import ConfigError
from xlj.data.labelled import records
from xlj.data.labelled.examples import Question
from xlj.io import json_file
from xlj.io.quoting import quoted, shortened
from xlj.io.storage import AnyPath


def walk(path: AnyPath) -> Iterator[tuple[Any, Any, str, str]]:
    """Yields (paragraph, question, file, place of the question in it) for each question in order.

    Paragraphs and questions are JSON values. The file contains SQuAD's articles, or records that
    are both paragraph and question, as in Hugging Face `datasets`.

    Raises:
      ConfigError: if the file cannot be read or has another layout.
    """
    for value, place in records.values(path):
        if isinstance(value, dict) and "context" in value and "question" in value:
            yield value, value, place, "record"
            continue
        is_article = isinstance(value, dict) and "paragraphs" in value
        articles = [(value, "article")] if is_article else json_file.items(place, value, "data", "")
        for article, at in articles:
            if isinstance(article, dict) and "context" in article and "question" in article:
                yield article, article, place, at
                continue
            for paragraph, within in json_file.items(place, article, "paragraphs", at):
                for question, where in json_file.items(place, paragraph, "qas", within):
                    yield paragraph, question, place, where


def read(path: AnyPath, misplaced: str = "error") -> list[Question]:
    """Reads the questions of a file, and prints how many answers were misplaced.

    If `answers` is missing or one empty text, as in XTREME's test files, the answers are unknown.
    They are empty for SQuAD 2.0's `is_impossible`, or an empty list. `plausible_answers` are not
    read.

    Args:
      misplaced: what to do with an answer that is not at its `answer_start`. `error` raises an
        error. `find` uses its text's position if there is exactly one. `skip` drops the answer, and
        the question if it has no other answer.

    Raises:
      ConfigError: if the file cannot be read, or an answer is misplaced; with file, place and
        question.
    """
    policy, questions = Misplaced(misplaced), list[Question]()
    for paragraph, entry, file, where in walk(path):
        question = policy.apply(_question(paragraph, entry, file, where))
        questions += [question] if question else []
    policy.report(path)
    return unique(questions)


class Misplaced:
    """Corrects or drops misplaced answers, and counts them.

    Args:
      policy: as in `read`.
    """

    def __init__(self, policy: str):
        self._policy = policy
        self._places: list[str] = []

    def apply(self, question: Question) -> Question | None:
        """Returns the question with answers at their correct places; None if it is dropped.

        If all answers are empty texts, they are unknown.

        Raises:
          ConfigError: if an answer is not at its place; with the nearest place that has its text.
        """
        if not question.answers:
            return question
        if not any(text for text, _ in question.answers):
            return dataclasses.replace(question, answers=None)
        answers = list[tuple[str, int]]()
        for text, start in question.answers:
            if text and start >= 0 and question.context.startswith(text, start):
                answers.append((text, start))
                continue
            matches = re.finditer(f"(?={re.escape(text)})", question.context) if text else ()
            places = [match.start() for match in matches]
            if self._policy == "find" and len(places) == 1:
                answers.append((text, places[0]))
            elif self._policy != "skip":
                raise _misplaced(question, text, start, places)
            self._places.append(question.place)
        return dataclasses.replace(question, answers=tuple(answers)) if answers else None

    def report(self, source: AnyPath | str) -> None:
        """Prints the number of misplaced answers, if there are any."""
        if self._places:
            result = "dropped" if self._policy == "skip" else "moved to where their text is"
            print(
                f"{source}: {len(self._places):,} answers that are not at their answer_start were "
                f"{result} (task.misplaced={self._policy}); the first: {self._places[0]}",
                file=sys.stderr,
            )


def _misplaced(question: Question, text: str, start: int, places: Sequence[int]) -> ConfigError:
    hint, context = "", question.context
    if places:
        hint = f"; it is at {min(places, key=lambda at: abs(at - start))}"
        hint += "" if len(places) > 1 else " (task.misplaced=find uses that position)"
    actual = context[max(start, 0) : max(start, 0) + len(text)]
    return ConfigError(
        f"{question.place} (question {shortened(question.identity)}): the answer {quoted(text)} "
        f"should be at character {quoted(start)} of the context, but that is {quoted(actual)}"
        f"{hint or '; task.misplaced=skip drops such answers'}"
    )


def unique(questions: Iterable[Question]) -> list[Question]:
    """Makes the identities of questions unique.

    XTREME's training files of TyDiQA contain only the last part of each id, so that many questions
    share an id; later questions become `ID#2`, `ID#3` and so on. If question and context are equal,
    too, it is one question, and the later entry adds answers (XTREME's translated files have one
    entry per answer).
    """
    by_name: dict[str, Question] = {}
    names: dict[tuple[str, str, str], str] = {}
    repeats: Counter[str] = Counter()
    for new in questions:
        key = new.identity, new.question, new.context
        if key in names:
            old = by_name[names[key]]
            answers = tuple(dict.fromkeys([*(old.answers or ()), *(new.answers or ())]))
            by_name[names[key]] = dataclasses.replace(old, answers=answers or old.answers)
            continue
        name = new.identity
        while name in by_name:
            repeats[new.identity] += 1
            name = f"{new.identity}#{repeats[new.identity] + 1}"
        names[key] = name
        by_name[name] = dataclasses.replace(new, identity=name)
    return list(by_name.values())


def _question(paragraph: Any, entry: Any, file: str, where: str) -> Question:
    question = Question(
        identity=identity(entry, file, where),
        question=json_file.text(file, entry, "question", where),
        context=json_file.text(file, paragraph, "context", where.rpartition(".")[0] or where),
        answers=None if entry.get("answers") is None else tuple(answers(entry, file, where)),
        place=file if where == "record" else f"{file}: {where}",
    )
    if not entry.get("is_impossible"):
        return question
    if any(text for text, _ in question.answers or ()):
        raise ConfigError(
            f"{question.place} (question {shortened(question.identity)}): is_impossible is set, "
            "but the question has answers"
        )
    return dataclasses.replace(question, answers=())


def identity(entry: Any, file: str, where: str) -> str:
    """Returns the id of a question, a text or a whole number; raises as `json_file.text`."""
    number = entry.get("id") if isinstance(entry, dict) else None
    if isinstance(number, int) and not isinstance(number, bool):
        return str(number)
    return json_file.text(file, entry, "id", where)


def answers(entry: Any, file: str, where: str) -> Iterator[tuple[str, int]]:
    """Yields (text, index of its first character in the context) for the answers of a question.

    The answers are a list of objects, as in SQuAD, or an object of two lists, as in Hugging Face
    `datasets`. The index is -1 if it is missing.

    Raises:
      ConfigError: if the answers have another layout.
    """
    entries = entry["answers"]
    if isinstance(entries, dict):
        columns = (entries.get(key) for key in ("text", "answer_start"))
        texts, starts = (x if x is None or isinstance(x, list) else [x] for x in columns)
        if texts is None or (starts is not None and len(starts) != len(texts)):
            raise ConfigError(
                f"{file}: {where}.answers needs the lists text and answer_start, of equal length"
            )
        rows = zip(texts, starts or [None] * len(texts), strict=True)
        listed: list[tuple[Any, str]] = [
            ({"text": text, "answer_start": start}, f"{where}.answers[{k}]")
            for k, (text, start) in enumerate(rows)
        ]
    else:
        listed = json_file.items(file, entry, "answers", where)
    for answer, at in listed:
        text = json_file.text(file, answer, "text", at)
        start = answer.get("answer_start")
        if start is not None and not re.fullmatch(r"-?\d{1,15}(\.0)?", f"{start}"):
            raise ConfigError(
                f"{file}: {at}.answer_start is {quoted(start)}, expected a whole number"
            )
        yield text, -1 if start is None else int(float(start))
