"""Labelled sources: found by the templates of a config, and read into examples."""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from xlj.config import ConfigError
from xlj.config.finetuning import Task
from xlj.data.labelled import conll, labels, records, squad, tables, tfds
from xlj.data.labelled.examples import Example, Question, Sentences, Words
from xlj.data.text.templates import match
from xlj.io import storage
from xlj.io.quiet import require
from xlj.io.storage import AnyPath, place
from xlj.phrasebook import LANGUAGES, labelled
from xlj.phrasebook.labelled.examples import LabelledTexts, TaggedWords

PHRASEBOOK = {
    "nli": "classification",
    "paraphrases": "classification",
    "tags": "tagging",
    "entities": "tagging",
    "questions": "question_answering",
}
"""The labelled tasks of the embedded corpus, and their kinds."""


def _read_words(path: AnyPath, language: str, task: Task) -> Sequence[Words]:
    chunk_tags = task.scored_by == "chunk_f1"
    if records.are_in(path):
        return records.read_words(path, language, task.columns, task.names, chunk_tags)
    return conll.read(path, language, task.columns, task.comments, chunk_tags)


FILES: dict[str, Callable[[AnyPath, str, Task], Sequence[Example]]] = {
    "classification": lambda path, _, task: tables.read(
        path, task.columns, task.labels, task.names
    ),
    "tagging": _read_words,
    "question_answering": lambda path, _, task: squad.read(path, task.misplaced),
}
"""What reads the files of each kind of task."""
SPLITS = ("train", "dev", "test")


def resolve(task: Task, split: str, languages: Sequence[str]) -> dict[str, list[str]]:
    """The sources of each language, in the order of the templates, all of them there.

    A template need not be there for every language. TFDS is not asked what it has.

    Args:
      split: the key of `task` with the templates; without any, no language has sources.

    Raises:
      ConfigError: with all that `templates.match` finds wrong, or if TFDS is not installed.
    """
    found, problems = match(
        getattr(task, split),
        f"task.{split}",
        {language: {"language": language} for language in languages},
        "languages",
        lambda source, language: [source] if _is_there(source, language, task.kind) else [],
        lambda template: template.startswith("tfds:") and tfds.parse(template).has_all_languages,
    )
    if problems:
        raise ConfigError("\n".join(problems))
    for source in itertools.chain(*found.values()):
        if source.startswith("tfds:"):
            require("tensorflow_datasets", source)
    return found


def read(source: str, language: str, task: Task) -> list[Example]:
    """All examples of a source that `resolve` found, in order: of the type of the task's kind, at
    least one.

    Raises:
      ConfigError: if it cannot be read or does not fit the task; with file and line.
    """
    found = list(_read(source, language, task))
    if not found:
        raise ConfigError(f"{source} holds no examples")
    if task.labels:
        labels.check(found, task.labels)
    return found


def _read(source: str, language: str, task: Task) -> Sequence[Example]:
    if source.startswith("tfds:"):
        return tfds.read(source, language, task.misplaced)
    if source.startswith("phrasebook:"):
        name, split = _phrasebook(source, task.kind)
        return list(_phrasebook_examples(name, language, split))
    return FILES[task.kind](place(source), language, task)


def _is_there(source: str, language: str, kind: str) -> bool:
    """Whether a source has a language, as far as can be seen without reading it."""
    if source.startswith("tfds:"):
        _same_kind(source, tfds.parse(source).kind, kind)
        return True
    if source.startswith("phrasebook:"):
        _phrasebook(source, kind)
        return language in LANGUAGES
    return storage.matching(source) == [place(source)]


def _phrasebook(source: str, kind: str) -> tuple[str, str]:
    """Task and split of `phrasebook:TASK/LANGUAGE#SPLIT`."""
    found = re.fullmatch(r"phrasebook:([^/#]+)/[^/#]+#(.+)", source)
    if not found or found[1] not in PHRASEBOOK or found[2] not in SPLITS:
        raise ConfigError(
            f"{source}: it must look like phrasebook:TASK/{{language}}#SPLIT with a task of "
            f"{', '.join(PHRASEBOOK)} and a split of {', '.join(SPLITS)}"
        )
    _same_kind(source, PHRASEBOOK[found[1]], kind)
    return found[1], found[2]


def _phrasebook_examples(name: str, language: str, split: str) -> Iterator[Example]:
    for number, found in enumerate(labelled.examples(name, language, split), 1):
        place = f"phrasebook:{name}/{language}#{split}:{number}"
        if isinstance(found, LabelledTexts):
            yield Sentences(found.texts, found.label, place)
        elif isinstance(found, TaggedWords):
            yield Words(found.words, found.tags, place)
        else:  # the identity is the same in every language, as in XQuAD
            identity = f"{split}-{number}"
            yield Question(identity, found.question, found.context, found.answers, place)


def _same_kind(source: str, kind: str, wanted: str) -> None:
    if kind != wanted:
        raise ConfigError(f"{source} is for task.kind={kind}, not {wanted}")
