"""The data of a task: its examples by split and language, as rows."""

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
class Set:
    """Examples of one language, ready to be predicted."""

    examples: Sequence[Example]
    made: Features


@dataclasses.dataclass(frozen=True)
class TaskData:
    """Everything that a task is learned from and scored on, by language."""

    kind: TaskKind
    labels: tuple[str, ...]
    """Of classes or tags, in the order of the head's outputs; none of questions."""
    train: Mapping[str, Set]
    dev: Mapping[str, Set]
    test: Mapping[str, Set]

    def of(self, languages: Sequence[str]) -> "TaskData":
        """That of some languages alone."""

        def chosen(sets: Mapping[str, Set]) -> dict[str, Set]:
            return {name: found for name, found in sets.items() if name in languages}

        return TaskData(self.kind, self.labels, *map(chosen, (self.train, self.dev, self.test)))

    def counts(self) -> str:
        """A line a split and language: examples, rows, what was cut, and what is not there."""
        lines = []
        for split in SPLITS:
            for language, found in getattr(self, split).items():
                rows = f"{len(found.examples):,} examples, {len(found.made.tokens):,} rows"
                cut = [f", {n} {what} cut" for what, n in found.made.cut.items() if n]
                cut.append(self._lack(found.examples))
                lines.append(f"{split:5} {language:8} {rows}{''.join(cut)}")
        return "\n".join(lines)

    def _lack(self, examples: Sequence[Example]) -> str:
        if examples[0].labels is None or not self.kind.is_labelled(examples):
            return ", no labels: predicted, not scored"
        remark = self.kind.remark(examples)
        return f", {remark}" * bool(remark)


def load(task: Task, vocabulary: Vocabulary) -> TaskData:
    """Reads all sources of a task, and makes rows of them.

    Raises ConfigError, with file and line, if a source is missing or damaged, or labels do not fit.
    """
    examples = _read(task)
    of_task = kind.find(task.effective_kind)
    labels = _labels(task, of_task, examples)
    sets = {
        split: {
            language: Set(found, of_task.rows(found, vocabulary, labels, task))
            for language, found in by_language.items()
        }
        for split, by_language in examples.items()
    }
    return TaskData(of_task, labels, **sets)


def sources(task: Task) -> list[tuple[str, str, str]]:
    """(split, language, source) of all that a task is read from: files, and sets of libraries.
    Raises ConfigError if one is missing."""
    return [
        (split, language, source)
        for split, names in languages_of(task).items()
        for language, found in reading.resolve(task, split, names).items()
        for source in found
    ]


def _read(task: Task) -> dict[str, Examples]:
    of_task = kind.find(task.effective_kind)
    found: dict[str, Examples] = {split: {} for split in SPLITS}
    with tqdm(sources(task), desc="reading", unit="source", disable=None, leave=False) as bar:
        for split, language, source in bar:
            examples = reading.read(source, language, task)
            found[split].setdefault(language, []).extend(examples)
    for by_language in found.values():
        for language, of_language in by_language.items():
            check_all_or_none(of_language)
            by_language[language] = of_task.distinct(of_language)  # sources may share ids
    return found


def _labels(task: Task, of_task: TaskKind, data: Mapping[str, Examples]) -> tuple[str, ...]:
    """The labels of the task; those of dev and test are among them."""
    training, dev, test = (
        [example for examples in data[split].values() for example in examples] for split in SPLITS
    )
    require(training)
    known: tuple[str, ...] = ()
    if of_task.has_labels:  # a head that is scored as it is has its own
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
            f"task.select=trained chooses on dev of {', '.join(task.languages)}, but task.dev is "
            f"of {', '.join(data['dev'])}"
        )
    return known
