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

_NO_START = -1  # an answer without `answer_start`


def iterate_questions(path: AnyPath) -> Iterator[tuple[Any, Any, str, str]]:
    """Yields (paragraph, question, file, JSON path of the question) for each question in order.

    Paragraphs and questions are JSON values. The file has SQuAD's nested articles, or flat records
    with `context` and `question`, as Hugging Face `datasets` writes them. A flat record is yielded
    as both paragraph and question.

    Raises:
      ConfigError: if the file cannot be read or has another layout.
    """
    for value, file in records.values(path):
        if _is_flat(value):
            yield value, value, file, "record"
            continue
        is_article = isinstance(value, dict) and "paragraphs" in value
        articles = [(value, "article")] if is_article else json_file.items(file, value, "data", "")
        for article, article_path in articles:
            if _is_flat(article):
                yield article, article, file, article_path
                continue
            paragraphs = json_file.items(file, article, "paragraphs", article_path)
            for paragraph, paragraph_path in paragraphs:
                for question, path_ in json_file.items(file, paragraph, "qas", paragraph_path):
                    yield paragraph, question, file, path_


def _is_flat(value: Any) -> bool:
    return isinstance(value, dict) and "context" in value and "question" in value


def read(path: AnyPath, misplaced: str = "error") -> list[Question]:
    """Reads the questions of a file, and prints how many answers were misplaced.

    `Question.answers` is None (unknown) if `answers` is missing or has only empty texts, as in
    XTREME's test files. It is `()` (no answer) if SQuAD 2.0's `is_impossible` is set, or `answers`
    is an empty list. `plausible_answers` are not read.

    Args:
      misplaced: what to do with an answer whose text is not at its `answer_start`. `error` raises
        an error. `find` uses the position of the text if it occurs exactly once in the context,
        and raises an error otherwise. `skip` drops the answer, and a question without other
        answers.

    Raises:
      ConfigError: if the file cannot be read, or an answer is misplaced and not corrected or
        dropped. The message names the file, the JSON path and the question.
    """
    policy, questions = MisplacedAnswerPolicy(misplaced), list[Question]()
    for paragraph, entry, file, path_ in iterate_questions(path):
        question = policy.apply(_parse_question(paragraph, entry, file, path_))
        questions += [question] if question else []
    policy.report(path)
    return make_ids_unique(questions)


class MisplacedAnswerPolicy:
    """Corrects, drops or refuses answers that are not at their `answer_start`, and counts them.

    Args:
      policy: `error`, `find` or `skip`; `read` describes each.
    """

    def __init__(self, policy: str):
        self._policy = policy
        self._places: list[str] = []

    def apply(self, question: Question) -> Question | None:
        """Returns the question with its answers corrected; None if the question is dropped.

        `answers` becomes None (unknown) if all answer texts are empty.

        Raises:
          ConfigError: if an answer is misplaced and the policy does not correct or drop it. The
            message gives the nearest occurrence of its text.
        """
        if not question.answers:
            return question
        if not any(text for text, _ in question.answers):
            return dataclasses.replace(question, answers=None)
        corrected = list[tuple[str, int]]()
        for text, start in question.answers:
            if text and start >= 0 and question.context.startswith(text, start):
                corrected.append((text, start))
                continue
            matches = re.finditer(f"(?={re.escape(text)})", question.context) if text else ()
            occurrences = [match.start() for match in matches]
            if self._policy == "find" and len(occurrences) == 1:
                corrected.append((text, occurrences[0]))
            elif self._policy != "skip":
                raise _misplaced_error(question, text, start, occurrences)
            self._places.append(question.place)
        return dataclasses.replace(question, answers=tuple(corrected)) if corrected else None

    def report(self, source: AnyPath | str) -> None:
        """Prints the number of misplaced answers, if there are any."""
        if self._places:
            action = "dropped" if self._policy == "skip" else "moved to the position of their text"
            print(
                f"{source}: answers with a wrong answer_start, {action} "
                f"(task.misplaced={self._policy}): {len(self._places):,}, the first in "
                f"{self._places[0]}",
                file=sys.stderr,
            )


def _misplaced_error(
    question: Question, text: str, start: int, occurrences: Sequence[int]
) -> ConfigError:
    """Returns an error that names the question, the answer and a remedy.

    The remedy depends on how often the text of the answer occurs in the context.
    """
    if start < 0:
        problem = f"the answer {quoted(text)} has no answer_start, or a negative one"
    else:
        actual = question.context[start : start + len(text)]
        problem = (
            f"answer_start={start} of the answer {quoted(text)}: the context has {quoted(actual)} "
            "at this position"
        )
    nearest = min(occurrences, key=lambda position: abs(position - start), default=0)
    remedy = {
        0: "the answer is not in the context; task.misplaced=skip drops such answers",
        1: f"the answer is at {nearest}; task.misplaced=find uses this position",
    }.get(
        len(occurrences),
        f"the nearest of its {len(occurrences)} occurrences is at {nearest}; correct answer_start, "
        "or drop such answers with task.misplaced=skip",
    )
    return ConfigError(
        f"{question.place} (question {shortened(question.identity)}): {problem}; {remedy}"
    )


def make_ids_unique(questions: Iterable[Question]) -> list[Question]:
    """Makes the ids of questions unique.

    TyDiQA's training files in XTREME truncate ids, so ids repeat. Later questions with the same id
    become `ID#2`, `ID#3` and so on. Entries with the same id, question and context are merged into
    one question with all their answers: XTREME's translated files have one entry per answer.
    """
    questions_by_id: dict[str, Question] = {}
    unique_ids: dict[tuple[str, str, str], str] = {}
    repeats: Counter[str] = Counter()
    for new in questions:
        key = new.identity, new.question, new.context
        if key in unique_ids:
            old = questions_by_id[unique_ids[key]]
            answers = tuple(dict.fromkeys([*(old.answers or ()), *(new.answers or ())]))
            # Without any answer, None (unknown) stays None, and () (no answer) stays ().
            merged = dataclasses.replace(old, answers=answers or old.answers)
            questions_by_id[unique_ids[key]] = merged
            continue
        unique_id = new.identity
        while unique_id in questions_by_id:
            repeats[new.identity] += 1
            unique_id = f"{new.identity}#{repeats[new.identity] + 1}"
        unique_ids[key] = unique_id
        questions_by_id[unique_id] = dataclasses.replace(new, identity=unique_id)
    return list(questions_by_id.values())


def _parse_question(paragraph: Any, entry: Any, file: str, path: str) -> Question:
    """Returns a question; its answers are not compared with the context yet."""
    paragraph_path = path.rpartition(".")[0] or path  # data[0].paragraphs[1] of ...[1].qas[2]
    question = Question(
        identity=read_id(entry, file, path),
        question=json_file.text(file, entry, "question", path),
        context=json_file.text(file, paragraph, "context", paragraph_path),
        answers=None if entry.get("answers") is None else tuple(parse_answers(entry, file, path)),
        place=file if path == "record" else f"{file}: {path}",
        language=records.stated_language(entry),
    )
    if not entry.get("is_impossible"):
        return question
    if any(text for text, _ in question.answers or ()):
        raise ConfigError(
            f"{question.place} (question {shortened(question.identity)}): is_impossible is set, "
            "but the question has answers; remove one of the two"
        )
    return dataclasses.replace(question, answers=())


def read_id(entry: Any, file: str, path: str) -> str:
    """Returns the id of a question; a whole number is converted to a string.

    Args:
      path: the JSON path of the question, for errors.

    Raises:
      ConfigError: if the question has no id, or the id is neither text nor a whole number.
    """
    number = entry.get("id") if isinstance(entry, dict) else None
    if isinstance(number, int) and not isinstance(number, bool):
        return str(number)
    return json_file.text(file, entry, "id", path)


def parse_answers(entry: Any, file: str, path: str) -> Iterator[tuple[str, int]]:
    """Yields (text, index of its first character in the context) for the answers of a question.

    The answers are a list of objects, as in SQuAD, or an object of two lists, as in Hugging Face
    `datasets`. The index is -1 if `answer_start` is missing.

    Raises:
      ConfigError: if the answers have another layout.
    """
    entries = entry["answers"]
    if isinstance(entries, dict):
        columns = (entries.get(key) for key in ("text", "answer_start"))
        texts, starts = (x if x is None or isinstance(x, list) else [x] for x in columns)
        if texts is None or (starts is not None and len(starts) != len(texts)):
            raise ConfigError(
                f"{file}: {path}.answers needs a list `text`; its list `answer_start` must have "
                "the same length, or be missing"
            )
        rows = zip(texts, starts or [None] * len(texts), strict=True)
        answer_entries: list[tuple[Any, str]] = [
            ({"text": text, "answer_start": start}, f"{path}.answers[{k}]")
            for k, (text, start) in enumerate(rows)
        ]
    else:
        answer_entries = json_file.items(file, entry, "answers", path)
    for answer, answer_path in answer_entries:
        text = json_file.text(file, answer, "text", answer_path)
        start = answer.get("answer_start")
        if start is not None and not re.fullmatch(r"-?\d{1,15}(\.0)?", f"{start}"):
            raise ConfigError(
                f"{file}: {answer_path}.answer_start is {quoted(start)}, expected a whole number"
            )
        yield text, _NO_START if start is None else int(float(start))
