"""Finds labelled sources by the templates of a config, and reads their examples."""

import itertools
import re
from collections.abc import Iterator, Sequence

from xlj.config import ConfigError
from xlj.config.task import Task
from xlj.config.tasks import KINDS
from xlj.data.labelled import kind, labels, tfds
from xlj.data.labelled.examples import Example, Question, Sentences, Words
from xlj.data.text.templates import match
from xlj.io import storage
from xlj.io.quiet import require
from xlj.io.storage import to_path
from xlj.phrasebook import LANGUAGES, labelled
from xlj.phrasebook.labelled.examples import LabelledTexts, TaggedWords

PHRASEBOOK: dict[str, type[Example]] = {
    "nli": Sentences,
    "paraphrases": Sentences,
    "tags": Words,
    "entities": Words,
    "questions": Question,
}
"""The labelled tasks of the phrasebook, and the type of the examples of each."""
SPLITS = ("train", "dev", "test")
"""The splits of these tasks."""


def resolve(task: Task, split: str, languages: Sequence[str]) -> dict[str, list[str]]:
    """Returns the existing sources of each language, in the order of the templates.

    A template need not match every language. Datasets of TFDS are assumed to exist.

    Args:
      task: the task; `task.train`, `task.dev` and `task.test` contain templates of sources.
      split: `train`, `dev` or `test`. If the task has no templates for the split, no language has
        sources.
      languages: codes of the languages.

    Raises:
      ConfigError: if a template or a language has no source, or TFDS is needed but not installed;
        the message lists all problems of the templates (`templates.match`).
    """
    sources, problems = match(
        getattr(task, split),
        f"task.{split}",
        {language: {"language": language} for language in languages},
        "languages",
        lambda source, language: [source] if _exists(source, language, task) else [],
        lambda template: template.startswith("tfds:") and tfds.parse(template).has_all_languages,
    )
    if problems:
        raise ConfigError("\n".join(problems))
    for source in itertools.chain(*sources.values()):
        if source.startswith("tfds:"):
            require("tensorflow_datasets", source)
    return sources


def read(source: str, language: str, task: Task) -> list[Example]:
    """Reads all examples of a source that `resolve` returned, in order.

    Returns:
      One or more examples of the type of the task.

    Raises:
      ConfigError: if the source cannot be read, contains no examples, or does not suit the task;
        the message names the file and the line.
    """
    examples = list(_read(source, language, task))
    if not examples:
        raise ConfigError(f"{source} contains no examples; check the file or the split")
    if task.labels:
        labels.check(examples, task.labels)
    return examples


def _read(source: str, language: str, task: Task) -> Sequence[Example]:
    if source.startswith("tfds:"):
        return tfds.read(source, language, task.misplaced)
    if source.startswith("phrasebook:"):
        name, split = _parse_phrasebook(source, task)
        return list(_read_phrasebook(name, language, split))
    return kind.find(task.effective_kind).read(to_path(source), language, task)


def _exists(source: str, language: str, task: Task) -> bool:
    """Whether a source has a language, as far as this is known without reading the source."""
    if source.startswith("tfds:"):
        _check_type(source, tfds.parse(source).example, task)
        return True
    if source.startswith("phrasebook:"):
        _parse_phrasebook(source, task)
        return language in LANGUAGES
    return storage.find_files(source) == [to_path(source)]


def _parse_phrasebook(source: str, task: Task) -> tuple[str, str]:
    """Returns TASK and SPLIT of a source `phrasebook:TASK/LANGUAGE#SPLIT`."""
    parts = re.fullmatch(r"phrasebook:([^/#]+)/[^/#]+#(.+)", source)
    if not parts or parts[1] not in PHRASEBOOK or parts[2] not in SPLITS:
        raise ConfigError(
            f"{source}: expected phrasebook:TASK/{{language}}#SPLIT; TASK is one of "
            f"{', '.join(PHRASEBOOK)}, and SPLIT is one of {', '.join(SPLITS)}"
        )
    _check_type(source, PHRASEBOOK[parts[1]], task)
    return parts[1], parts[2]


def _read_phrasebook(name: str, language: str, split: str) -> Iterator[Example]:
    for number, example in enumerate(labelled.examples(name, language, split), 1):
        place = f"phrasebook:{name}/{language}#{split}:{number}"
        if isinstance(example, LabelledTexts):
            yield Sentences(example.texts, example.label, place)
        elif isinstance(example, TaggedWords):
            yield Words(example.words, example.tags, place)
        else:  # parallel questions have the same identity in all languages, as in XQuAD
            identity = f"{split}-{number}"
            yield Question(identity, example.question, example.context, example.answers, place)


def _check_type(source: str, example: type[Example], task: Task) -> None:
    """Raises a `ConfigError` if the examples of a source have another type than the task needs."""
    if kind.find(task.kind).example is not example:
        kinds = [name for name in KINDS if kind.find(name).example is example]
        raise ConfigError(
            f"{source} has examples of task.kind={' or '.join(kinds)}, not {task.kind}; set "
            "task.kind, or name another source"
        )
