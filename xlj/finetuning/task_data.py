"""Loads the data of a task: examples by split and language, converted to rows, which go into a row
store whose folder is named by a hash of the rows.
"""

import dataclasses
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from xlj.config import ConfigError
from xlj.config.task import Task, languages_of
from xlj.data.labelled import kind, task_sources
from xlj.data.labelled.examples import Example
from xlj.data.labelled.features import Features
from xlj.data.labelled.kind import TaskKind
from xlj.data.labelled.task_sources import SPLITS, check_all_or_none, label_set
from xlj.data.labelled.task_sources import check_labels as check
from xlj.data.labelled.task_sources import require_labels as require
from xlj.data.rows import row_kind, store
from xlj.data.rows.row_kind import Field, Rows
from xlj.data.rows.store import Manifest, RowStore, Split, TaskRows
from xlj.data.tokenizer.layout import BOS
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic
from xlj.io.malformed import Malformed, Skipping

Examples = dict[str, list[Example]]
"""Examples by language."""


@dataclasses.dataclass(frozen=True)
class ExampleSet:
    """The examples of one language, and the rows made from them."""

    examples: Sequence[Example]
    rows: Features


@dataclasses.dataclass(frozen=True)
class TaskData:
    """The data of a task by language, for training and scoring."""

    kind: TaskKind
    labels: tuple[str, ...]
    """Classes or tags, in the order of the head's outputs; empty for tasks without labels."""
    train: Mapping[str, ExampleSet]
    dev: Mapping[str, ExampleSet]
    test: Mapping[str, ExampleSet]

    def of(self, languages: Sequence[str]) -> "TaskData":
        """Returns only the data of these languages."""

        def select(sets: Mapping[str, ExampleSet]) -> dict[str, ExampleSet]:
            return {name: examples for name, examples in sets.items() if name in languages}

        return TaskData(self.kind, self.labels, *map(select, (self.train, self.dev, self.test)))

    def counts(self) -> str:
        """Returns a printable line for each split and language: the numbers of examples, rows and
        truncated texts, and remarks."""
        lines = []
        for split in SPLITS:
            for language, example_set in getattr(self, split).items():
                size = (
                    f"{len(example_set.examples):,} examples, {len(example_set.rows.tokens):,} rows"
                )
                notes = [f", {n} {what} cut" for what, n in example_set.rows.cut.items() if n]
                notes.append(self._note(example_set.examples))
                lines.append(f"{split:5} {language:8} {size}{''.join(notes)}")
        return "\n".join(lines)

    def _note(self, examples: Sequence[Example]) -> str:
        if examples[0].labels is None or not self.kind.is_labelled(examples):
            return ", no labels: predicted, not scored"
        remark = self.kind.remark(examples)
        return f", {remark}" * bool(remark)


def load(task: Task, vocabulary: Vocabulary) -> TaskData:
    """Reads all sources of a task, and converts the examples to rows.

    Raises:
      ConfigError: if a source is missing or damaged, or labels are wrong. The message names the
        file and, if there is one, the line.
    """
    examples = _read(task)
    task_kind = kind.find(task.effective_kind)
    labels = _labels(task, task_kind, examples)
    sets = {
        split: {
            language: ExampleSet(
                language_examples, task_kind.rows(language_examples, vocabulary, labels, task)
            )
            for language, language_examples in by_language.items()
        }
        for split, by_language in examples.items()
    }
    return TaskData(task_kind, labels, **sets)


def sources(task: Task) -> list[tuple[str, str, str]]:
    """Returns (split, language, source) for each source of a task.

    A source is a file, a TFDS data set or a part of the phrasebook (`config.finetuning.Task`).

    Raises:
      ConfigError: if a source is missing.
    """
    return [
        (split, language, source)
        for split, names in languages_of(task).items()
        for language, language_examples in task_sources.resolve(task, split, names).items()
        for source in language_examples
    ]


def _read(task: Task) -> dict[str, Examples]:
    task_kind = kind.find(task.effective_kind)
    data: dict[str, Examples] = {split: {} for split in SPLITS}
    with tqdm(sources(task), desc="reading", unit="source", disable=None, leave=False) as bar:
        for split, language, source in bar:
            examples = task_sources.read(source, language, task)
            data[split].setdefault(language, []).extend(examples)
    for by_language in data.values():
        for language, language_examples in by_language.items():
            if task.malformed == "skip":
                language_examples = _skip_unlabelled(language_examples)
            check_all_or_none(language_examples)
            # Examples from different sources may have the same id.
            by_language[language] = task_kind.distinct(language_examples)
    _warn_of_training_examples(data)
    return data


def _skip_unlabelled(examples: list[Example]) -> list[Example]:
    """Leaves out the unlabelled examples, and prints their number, unless all are unlabelled."""
    labelled, skipping = [e for e in examples if e.labels is not None], Skipping("skip")
    if not labelled:
        return examples
    for example in examples:
        if example.labels is None:
            skipping.skip(Malformed(f"no {example.what}", ""), example.where)
    skipping.report()
    return labelled


def _warn_of_training_examples(data: Mapping[str, Examples]) -> None:
    """Warns of dev and test sets of which at least half is training data, such as the same file."""
    if not data["dev"] and not data["test"]:
        return
    training = {repr(example.content) for part in data["train"].values() for example in part}
    for split in ("dev", "test"):
        for language, part in data[split].items():
            count = sum(repr(example.content) in training for example in part)
            if 2 * count >= len(part):
                print(
                    f"warning: {count:,} of the {len(part):,} examples of task.{split} in "
                    f"{language} are training data too, so their scores say little; first: "
                    f"{part[0].where}",
                    file=sys.stderr,
                )


def _labels(task: Task, task_kind: TaskKind, data: Mapping[str, Examples]) -> tuple[str, ...]:
    """Returns the labels of the task, and checks the examples.

    Raises:
      ConfigError: if labels are missing, a label of dev or test is not a label of the task, the
        metric cannot score an example, or `task.select=trained` has no dev data to select by.
    """
    training, dev, test = (
        [example for examples in data[split].values() for example in examples] for split in SPLITS
    )
    require(training)
    labels: tuple[str, ...] = ()
    if task_kind.has_labels:  # without training data, the existing head determines the labels
        labels = label_set(training, task.labels) if training else task.labels
    require(dev)
    for split in ("train", "dev"):
        for language, examples in data[split].items():
            if not task_kind.is_labelled(examples):
                raise ConfigError(
                    f"{examples[0].where}: no question of task.{split} in {language} has an "
                    "answer; expected answers in training and dev data"
                )
    if task_kind.has_labels:
        for examples in (dev, test):
            check(examples, labels)
    task_kind.check_examples([*training, *dev, *test], labels, task)
    if training and task.select == "trained" and not set(data["dev"]) & set(task.languages):
        raise ConfigError(
            f"task.select=trained needs dev data in {', '.join(task.languages)}, but task.dev has "
            f"data in {', '.join(data['dev'])}; set task.select=all, or add dev data"
        )
    return labels


def write_rows(
    cache: Path, kind: str, features: Mapping[str, Features], vocabulary: Vocabulary
) -> RowStore:
    """Writes a row store with the training examples of each language, unless it exists.

    Several processes may write the same store at the same time; the first complete one is used.

    Args:
      cache: the folder of row stores.
      kind: the kind of rows, one of `objectives.supervised.options.SUPERVISED`.
      features: the training examples of each language, as rows.
      vocabulary: the vocabulary of the rows.
    """
    rows: dict[str, Rows] = {
        language: {"tokens": part.tokens.astype(vocabulary.dtype), **part.labels}
        for language, part in features.items()
    }
    tasks = tuple(_task(kind, language, part) for language, part in rows.items())
    recipe = {"format": store.FORMAT, "kind": kind}
    manifest = Manifest(vocabulary.size, vocabulary.digest, recipe=recipe, tasks=tasks)
    folder = cache / f"{kind}-{manifest.content_hash[:16]}"
    if not (folder / store.MANIFEST).is_file():
        try:
            with atomic.new_folder(folder) as part:
                for task, task_rows in zip(tasks, rows.values(), strict=True):
                    with atomic.as_config_error(folder):
                        (part / task.name).mkdir()
                    shard = store.shard_file(part / task.folder, 0)
                    atomic.write(shard, row_kind.to_records(task_rows, task.fields).tobytes())
                atomic.write(part / store.VOCABULARY, vocabulary.model)
                atomic.write(part / store.MANIFEST, manifest.to_json())
        except ConfigError:
            if not (folder / store.MANIFEST).is_file():  # no other process has written the store
                raise
    return RowStore(folder)


def _task(kind: str, language: str, rows: Rows) -> TaskRows:
    fields = tuple(
        Field(name, array.dtype.str, array.shape[1:], is_text=name == "tokens")
        for name, array in rows.items()
    )
    count, starts = row_kind.count_rows(rows), rows["tokens"][:, 0] == BOS
    digest = hashlib.sha256(row_kind.to_records(rows, fields).tobytes()).hexdigest()
    return TaskRows(
        name=f"{kind}.{language}",
        folder=f"{kind}.{language}",
        kind=kind,
        languages=(language,),
        length=rows["tokens"].shape[1],
        fields=fields,
        train=Split(
            count,
            row_kind.count_tokens(rows, fields),
            int(np.count_nonzero(starts)),
            count,
            digest,
            (count,),
        ),
        held_out=Split.without_rows(shards=1),
    )
