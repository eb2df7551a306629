"""The data of a task: its examples by split and language, as rows."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import ModuleType

from tqdm import tqdm

from xlj.config import ConfigError
from xlj.config.finetuning import Task, languages_of
from xlj.data.labelled import reading, squad
from xlj.data.labelled.examples import Example, Question, Words
from xlj.data.labelled.features import Features
from xlj.data.labelled.labels import alike, check, label_set, labels_of, require
from xlj.data.labelled.reading import SPLITS
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.finetuning import classification, question_answering, tagging

Predictions = Sequence[str] | Sequence[Sequence[str]] | Mapping[str, str]
"""Labels of examples, tags of their words, or answers by the question's identity."""


KINDS: dict[str, ModuleType] = {
    "classification": classification,
    "tagging": tagging,
    "question_answering": question_answering,
}
"""The module of each kind of task, with the same names in each: `rows` of examples, the predictions
that `decode` makes of the head's outputs, a `majority` that predicts the most frequent labels (None
for a kind without), whether examples are `labelled`, their `scores`, and predictions as XTREME's
files have them, `to_text` and `ENDING`. Examples are read by kind too, so that they are of its
type."""

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

    labels: tuple[str, ...]
    """Of classes or tags, in the order of the head's outputs; none of questions."""
    train: Mapping[str, Set]
    dev: Mapping[str, Set]
    test: Mapping[str, Set]

    def of(self, languages: Sequence[str]) -> "TaskData":
        """That of some languages alone."""

        def chosen(sets: Mapping[str, Set]) -> dict[str, Set]:
            return {name: found for name, found in sets.items() if name in languages}

        return TaskData(self.labels, *map(chosen, (self.train, self.dev, self.test)))

    def counts(self) -> str:
        """A line a split and language: examples, rows, what was cut, and what is not there."""
        lines = []
        for split in SPLITS:
            for language, found in getattr(self, split).items():
                rows = f"{len(found.examples):,} examples, {len(found.made.tokens):,} rows"
                cut = [f", {n} {what} cut" for what, n in found.made.cut.items() if n]
                lines.append(f"{split:5} {language:8} {rows}{''.join(cut)}{_lack(found.examples)}")
        return "\n".join(lines)


def _lack(examples: Sequence[Example]) -> str:
    silent = sum(isinstance(example, Question) and not example.answers for example in examples)
    if labels_of(examples[0]) is None or silent == len(examples):
        return ", no labels: predicted, not scored"
    return f", {silent:,} without an answer (task.no_answer)" if silent else ""


def load(task: Task, vocabulary: Vocabulary) -> TaskData:
    """Reads all sources of a task, and makes rows of them.

    Raises ConfigError, with file and line, if a source is missing or damaged, or labels do not fit.
    """
    examples = _read(task)
    labels, kind = _labels(task, examples), KINDS[task.kind]
    sets = {
        split: {
            language: Set(found, kind.rows(found, vocabulary, labels, task))
            for language, found in by_language.items()
        }
        for split, by_language in examples.items()
    }
    return TaskData(labels, **sets)


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
    found: dict[str, Examples] = {split: {} for split in SPLITS}
    with tqdm(sources(task), desc="reading", unit="source", disable=None, leave=False) as bar:
        for split, language, source in bar:
            examples = reading.read(source, language, task)
            found[split].setdefault(language, []).extend(examples)
    for by_language in found.values():
        for language, of_language in by_language.items():
            alike(of_language)
            by_language[language] = squad.distinct(of_language)  # sources may share ids
    return found


def _labels(task: Task, data: Mapping[str, Examples]) -> tuple[str, ...]:
    """The labels of the task; those of dev and test are among them."""
    training, dev, test = (
        [example for examples in data[split].values() for example in examples] for split in SPLITS
    )
    known = label_set(training, task.labels)
    require(dev)
    for split in ("train", "dev"):
        for language, examples in data[split].items():
            if not KINDS[task.kind].labelled(examples):
                raise ConfigError(
                    f"{examples[0].place}: no question of task.{split} in {language} has an answer"
                )
    for examples in (dev, test):
        check(examples, known)
    if task.scored_by == "chunk_f1":
        every = [*training, *dev, *test]
        tagging.require_chunks([e for e in every if isinstance(e, Words)], known)
    if task.select == "trained" and not set(data["dev"]) & set(task.languages):
        raise ConfigError(
            f"task.select=trained chooses on dev of {', '.join(task.languages)}, but task.dev is "
            f"of {', '.join(data['dev'])}"
        )
    return known
