"""Labelled sources: found by the templates of a config, and read into examples."""

import itertools
import re
from collections.abc import Iterator, Sequence

from xlj.config import ConfigError
from xlj.config.finetuning import Task
from xlj.config.tasks import KINDS
from xlj.data.labelled import kind, labels, tfds
from xlj.data.labelled.examples import Example, Question, Sentences, Words
from xlj.data.text.templates import match
from xlj.io import storage
from xlj.io.quiet import require
from xlj.io.storage import place
from xlj.phrasebook import LANGUAGES, labelled
from xlj.phrasebook.labelled.examples import LabelledTexts, TaggedWords

PHRASEBOOK: dict[str, type[Example]] = {
    "nli": Sentences,
    "paraphrases": Sentences,
    "tags": Words,
    "entities": Words,
    "questions": Question,
}
"""The labelled tasks of the embedded corpus, and the types of their examples."""
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
        lambda source, language: [source] if _is_there(source, language, task) else [],
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
        name, split = _phrasebook(source, task)
        return list(_phrasebook_examples(name, language, split))
    return kind.find(task.effective_kind).read(place(source), language, task)


def _is_there(source: str, language: str, task: Task) -> bool:
    """Whether a source has a language, as far as can be seen without reading it."""
    if source.startswith("tfds:"):
        _check_type(source, tfds.parse(source).example, task)
        return True
    if source.startswith("phrasebook:"):
        _phrasebook(source, task)
        return language in LANGUAGES
    return storage.matching(source) == [place(source)]


def _phrasebook(source: str, task: Task) -> tuple[str, str]:
    """Task and split of `phrasebook:TASK/LANGUAGE#SPLIT`."""
    found = re.fullmatch(r"phrasebook:([^/#]+)/[^/#]+#(.+)", source)
    if not found or found[1] not in PHRASEBOOK or found[2] not in SPLITS:
        raise ConfigError(
            f"{source}: it must look like phrasebook:TASK/{{language}}#SPLIT with a task of "
            f"{', '.join(PHRASEBOOK)} and a split of {', '.join(SPLITS)}"
        )
    _check_type(source, PHRASEBOOK[found[1]], task)
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


def _check_type(source: str, example: type[Example], task: Task) -> None:
    """Refuses a source whose examples are none of the task's kind."""
    if kind.find(task.kind).example is not example:
        others = [name for name in KINDS if kind.find(name).example is example]
        raise ConfigError(f"{source} is for task.kind={' or '.join(others)}, not {task.kind}")
