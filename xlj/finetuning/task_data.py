"""Loads the data of a task: its examples by split and language, converted to rows."""

import dataclasses
from collections.abc import Mapping, Sequence

from tqdm import tqdm

from xlj.config import ConfigError
from xlj.config.finetuning import Task, languages_of
from xlj.data.labelled import kind, reading
from xlj.data.labelled.examples import Example
from xlj.data.labelled.features import Features
from xlj.data.labelled.kind import TaskKind
from xlj.data.labelled.labels import check, check_all_or_none, label_set, require
from xlj.data.labelled.reading import SPLITS
from xlj.data.tokenizer.vocabulary import Vocabulary

Examples = dict[str, list[Example]]
"""Examples by language."""


@dataclasses.dataclass(frozen=True)
class ExampleSet:
    """Examples of one language, and their rows."""

    examples: Sequence[Example]
    rows: Features


@dataclasses.dataclass(frozen=True)
class TaskData:
    """All data that a task is trained and scored on, by language."""

    kind: TaskKind
    labels: tuple[str, ...]
    """Classes or tags, in the order of the head's outputs; empty for questions."""
    train: Mapping[str, ExampleSet]
    dev: Mapping[str, ExampleSet]
    test: Mapping[str, ExampleSet]

    def of(self, languages: Sequence[str]) -> "TaskData":
        """Returns the data of some languages only."""

        def chosen(sets: Mapping[str, ExampleSet]) -> dict[str, ExampleSet]:
            return {name: examples for name, examples in sets.items() if name in languages}

        return TaskData(self.kind, self.labels, *map(chosen, (self.train, self.dev, self.test)))

    def counts(self) -> str:
        """Describes each split and language in a line: examples, rows, cut texts and remarks."""
        lines = []
        for split in SPLITS:
            for language, entry in getattr(self, split).items():
                size = f"{len(entry.examples):,} examples, {len(entry.rows.tokens):,} rows"
                notes = [f", {n} {what} cut" for what, n in entry.rows.cut.items() if n]
                notes.append(self._note(entry.examples))
                lines.append(f"{split:5} {language:8} {size}{''.join(notes)}")
        return "\n".join(lines)

    def _note(self, examples: Sequence[Example]) -> str:
        if examples[0].labels is None or not self.kind.is_labelled(examples):
            return ", no labels: predicted, not scored"
        remark = self.kind.remark(examples)
        return f", {remark}" * bool(remark)


def load(task: Task, vocabulary: Vocabulary) -> TaskData:
    """Reads all sources of a task, and converts them to rows.

    Raises:
      ConfigError: with file and line, if a source is missing or damaged, or labels do not fit.
    """
    examples = _read(task)
    of_task = kind.find(task.effective_kind)
    labels = _labels(task, of_task, examples)
    sets = {
        split: {
            language: ExampleSet(of_language, of_task.rows(of_language, vocabulary, labels, task))
            for language, of_language in by_language.items()
        }
        for split, by_language in examples.items()
    }
    return TaskData(of_task, labels, **sets)


def sources(task: Task) -> list[tuple[str, str, str]]:
    """Returns (split, language, source) of all sources of a task: files, and library data sets.

    Raises:
      ConfigError: if a source is missing.
    """
    return [
        (split, language, source)
        for split, names in languages_of(task).items()
        for language, of_language in reading.resolve(task, split, names).items()
        for source in of_language
    ]


def _read(task: Task) -> dict[str, Examples]:
    of_task = kind.find(task.effective_kind)
    data: dict[str, Examples] = {split: {} for split in SPLITS}
    with tqdm(sources(task), desc="reading", unit="source", disable=None, leave=False) as bar:
        for split, language, source in bar:
            examples = reading.read(source, language, task)
            data[split].setdefault(language, []).extend(examples)
    for by_language in data.values():
        for language, of_language in by_language.items():
            check_all_or_none(of_language)
            by_language[language] = of_task.distinct(of_language)  # sources may share ids
    return data


def _labels(task: Task, of_task: TaskKind, data: Mapping[str, Examples]) -> tuple[str, ...]:
    """Returns the labels of the task; the labels of dev and test must be among them."""
    training, dev, test = (
        [example for examples in data[split].values() for example in examples] for split in SPLITS
    )
    require(training)
    known: tuple[str, ...] = ()
    if of_task.has_labels:  # without training data, the labels are those of the existing head
        known = label_set(training, task.labels) if training else task.labels
    require(dev)
    for split in ("train", "dev"):
        for language, examples in data[split].items():
            if not of_task.is_labelled(examples):
                raise ConfigError(
                    f"{examples[0].where}: no question of task.{split} in {language} has an answer"
                )
    if of_task.has_labels:
        for examples in (dev, test):
            check(examples, known)
    of_task.check_examples([*training, *dev, *test], known, task)
    if training and task.select == "trained" and not set(data["dev"]) & set(task.languages):
        raise ConfigError(
            f"task.select=trained needs dev data of {', '.join(task.languages)}, but task.dev has "
            f"{', '.join(data['dev'])}"
        )
    return known
