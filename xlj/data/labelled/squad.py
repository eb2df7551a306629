"""Questions in SQuAD's JSON: SQuAD 1.1 and 2.0, XQuAD, MLQA, TyDiQA-GoldP."""

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
    """(paragraph, question, file, place of the question in it), of each question in order, as JSON
    has them: SQuAD's articles, or records that are both, as of Hugging Face's `datasets`; a
    `ConfigError` if the file cannot be read or is not laid out so."""
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
    """The questions of a file.

    `answers` may be missing or one empty text, as in XTREME's test files: then none is known.
    They are empty where SQuAD 2.0 says `is_impossible`, or has an empty list; `plausible_answers`
    are not read. How many answers were misplaced, and what became of them, is printed.

    Args:
      misplaced: what to do with an answer that is not at its `answer_start`: an `error`; `find`
        reads it from the one place that has its text; `skip` leaves it out, and its question if
        that has no other answer.

    Raises:
      ConfigError: if the file cannot be read, or an answer is misplaced; with file, place and
        question.
    """
    moved, found = Misplaced(misplaced), list[Question]()
    for paragraph, entry, file, where in walk(path):
        question = moved.placed(_question(paragraph, entry, file, where))
        found += [question] if question else []
    moved.report(path)
    return unique(found)


class Misplaced:
    """The policy for answers that are not where they are said to be, and what it has done.

    Args:
      policy: as of `read`.
    """

    def __init__(self, policy: str):
        self._policy = policy
        self._places: list[str] = []

    def placed(self, question: Question) -> Question | None:
        """The question with answers that stand where they are said to; None if it is left out.
        Answers that are all empty texts are not told.

        Raises:
          ConfigError: if an answer is somewhere else or nowhere; it names the nearest place that
            fits.
        """
        if not question.answers:
            return question
        if not any(text for text, _ in question.answers):
            return dataclasses.replace(question, answers=None)
        found = list[tuple[str, int]]()
        for text, start in question.answers:
            if text and start >= 0 and question.context.startswith(text, start):
                found.append((text, start))
                continue
            matches = re.finditer(f"(?={re.escape(text)})", question.context) if text else ()
            places = [match.start() for match in matches]
            if self._policy == "find" and len(places) == 1:
                found.append((text, places[0]))
            elif self._policy != "skip":
                raise _misplaced(question, text, start, places)
            self._places.append(question.place)
        return dataclasses.replace(question, answers=tuple(found)) if found else None

    def report(self, source: AnyPath | str) -> None:
        """Prints how many answers were misplaced, if some were."""
        if self._places:
            done = "left out" if self._policy == "skip" else "taken from where they stand"
            print(
                f"{source}: {len(self._places):,} answers that are not at their answer_start were "
                f"{done} (task.misplaced={self._policy}); the first: {self._places[0]}",
                file=sys.stderr,
            )


def _misplaced(question: Question, text: str, start: int, places: Sequence[int]) -> ConfigError:
    mend, context = "", question.context
    if places:
        mend = f"; it is at {min(places, key=lambda at: abs(at - start))}"
        mend += "" if len(places) > 1 else " (task.misplaced=find takes it from there)"
    there = context[max(start, 0) : max(start, 0) + len(text)]
    return ConfigError(
        f"{question.place} (question {shortened(question.identity)}): the answer {quoted(text)} "
        f"should be at character {quoted(start)} of the context, where there is {quoted(there)}"
        f"{mend or '; task.misplaced=skip leaves such answers out'}"
    )


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
            f"{question.place} (question {shortened(question.identity)}): is_impossible, but it "
            "has answers"
        )
    return dataclasses.replace(question, answers=())


def identity(entry: Any, file: str, where: str) -> str:
    """The id of a question, a text or a whole number; raises as `json_file.text`."""
    found = entry.get("id") if isinstance(entry, dict) else None
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    return json_file.text(file, entry, "id", where)


def answers(entry: Any, file: str, where: str) -> Iterator[tuple[str, int]]:
    """(text, its first character's index in the context) of the answers of a question: a list of
    objects, as SQuAD has them, or an object of two lists, as Hugging Face's `datasets` do; -1 where
    the index is missing.

    Raises:
      ConfigError: if the answers are not laid out so.
    """
    found = entry["answers"]
    if isinstance(found, dict):
        columns = (found.get(key) for key in ("text", "answer_start"))
        texts, starts = (x if x is None or isinstance(x, list) else [x] for x in columns)
        if texts is None or (starts is not None and len(starts) != len(texts)):
            raise ConfigError(
                f"{file}: there is no list {where}.answers.text, with as many answer_start"
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
            raise ConfigError(f"{file}: {at}.answer_start is {quoted(start)}, no whole number")
        yield text, -1 if start is None else int(float(start))
