"""Classification of a sentence, or of two sentences that are encoded together or separately.

The label of a row is one number: 1 + the index of the class, or 0 if the class is unknown.
"""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.config.task import Task
from xlj.data.labelled import features, kind, tables
from xlj.data.labelled.examples import Sentences
from xlj.data.labelled.features import Features
from xlj.data.labelled.kind import HuggingFace, TaskKind
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics import accuracy
from xlj.io.json_file import Record
from xlj.io.quoting import quoted
from xlj.io.storage import AnyPath

PAIRS = "The tokenizer encodes a pair as in training, with one separator between the two texts."
"""The remark on model cards for kinds of tasks that read pairs."""


class Classification(TaskKind):
    """Classifies a sentence, or two sentences that are encoded together."""

    name = "classification"
    token_axes = {"tokens": (1,)}
    metrics = ("accuracy",)
    reads = ("pairs", "columns", "labels", "names", "pooling")
    example = Sentences
    hugging_face: HuggingFace | None = HuggingFace(
        "ForSequenceClassification",
        "text-classification",
        problem_type="single_label_classification",
        remark=PAIRS,
    )

    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[Sentences]:
        """Reads examples from a table (TSV, CSV) or from records (JSON, Parquet).

        Warns if each label occurs once, which suggests that the column of labels has texts or ids.
        """
        examples = tables.read(path, task.columns, task.labels, task.names)
        found = [example.label for example in examples if example.label is not None]
        if 3 <= len(found) == len({*found} - {*task.labels}):
            print(
                f"warning: {path}: each of its {len(found):,} labels occurs once, such as "
                f"{quoted(found[0])}; check that task.columns names the column of labels last",
                file=sys.stderr,
            )
        return examples

    def rows(
        self,
        examples: Sequence[Sentences],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """Converts each example, one or two texts, to a row."""
        return features.of_sentences(examples, vocabulary, _index_labels(labels), task.length)

    def head(self) -> Any:
        """Returns the model's head for texts, which `model.task_pooling` applies to vectors."""
        from xlj.objectives.supervised import head as heads

        return heads.TaskHead(
            init=heads.init_classification,
            logits=lambda *arguments: heads.classify_texts(*arguments)[:, 0],
            losses=heads.cross_entropy(lambda logits: logits[:, None]),
        )

    def decode(
        self,
        outputs: np.ndarray,
        rows: Features,
        examples: Sequence[Sentences],
        labels: Sequence[str],
        task: Task,
    ) -> list[str]:
        """Returns the label of each example, from the index of the predicted class of each row."""
        return [labels[number] for number in outputs]

    def majority(self, training: Sequence[Sentences]) -> Callable[[Sequence[Sentences]], list[str]]:
        """Returns a baseline that predicts the most frequent label of the training data."""
        label = Counter(e.label for e in training if e.label).most_common(1)[0][0]
        return lambda examples: [label] * len(examples)

    def scores(
        self, predicted: Sequence[str], examples: Sequence[Sentences], metric: str, language: str
    ) -> dict[str, float]:
        """Computes the accuracy."""
        return {"accuracy": accuracy(predicted, [example.label for example in examples])}

    def from_fields(self, fields: Sequence[str], place: str) -> Sentences:
        """Makes an example from the fields of a line: one text or two texts."""
        return Sentences(kind.check_one_or_two(fields, place), None, place)

    def from_record(self, record: Mapping[str, Any], place: str) -> Sentences:
        """Makes an example from the keys that `kind.texts_of` reads, such as `text`."""
        return Sentences(kind.texts_of(record, place), None, place)

    def describe(
        self,
        logits: np.ndarray,
        rows: Features,
        examples: Sequence[Sentences],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """Returns for each example `label`, `probability`, and the `probabilities` of all
        labels."""
        best = self.decode(logits.argmax(-1), rows, examples, labels, task)
        probabilities = kind.probabilities(logits).tolist()
        return [
            {
                "label": label,
                "probability": max(values),
                "probabilities": dict(zip(labels, values, strict=True)),
            }
            for label, values in zip(best, probabilities, strict=True)
        ]

    def to_fields(self, description: Record) -> list[str]:
        """Returns the fields of an output line: the label and the probability of the label."""
        return [description["label"], f"{description['probability']:.6f}"]


class PairClassification(Classification):
    """Classifies two sentences that are encoded separately, from both mean vectors.

    A row is `<s> A </s> <s> B </s>`. For the encoder these are two examples.
    """

    name = "pair_classification"
    hugging_face = None

    @property
    def chosen_by(self) -> Mapping[str, str]:
        """Keys of `task` that select this kind: classification with `task.pairs=apart`."""
        return {"kind": "classification", "pairs": "apart"}

    def check(self, task: Task) -> None:
        """Refuses `task.pooling`, because the head reads the mean vectors of both sentences."""
        if task.pooling != "auto":
            raise ConfigError(
                f"task.pooling={task.pooling}: with task.pairs=apart, the head reads the mean "
                "vectors of both sentences; remove task.pooling"
            )

    def rows(
        self,
        examples: Sequence[Sentences],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """Converts each pair to a row. Refuses examples with one sentence or an empty sentence."""
        _require_pairs(examples)
        return features.of_sentences(examples, vocabulary, _index_labels(labels), task.length, True)

    def from_fields(self, fields: Sequence[str], place: str) -> Sentences:
        """Makes an example from the fields of a line: two texts."""
        example = super().from_fields(fields, place)
        _require_pairs([example])
        return example

    def from_record(self, record: Mapping[str, Any], place: str) -> Sentences:
        """Makes an example from the keys that `kind.texts_of` reads, such as `text`."""
        example = super().from_record(record, place)
        _require_pairs([example])
        return example

    def head(self) -> Any:
        """Returns a classification head for InferSent's features of both mean vectors."""
        from functools import partial

        from xlj.models.segments import average_examples
        from xlj.objectives.supervised import head as heads

        def logits(head: Any, model: Any, hidden: Any, tokens: Any, rngs: Any) -> Any:
            first, second = average_examples(hidden, tokens, 2).swapaxes(0, 1)
            return heads.classify(head, model, heads.pair_features(first, second), rngs)

        init = partial(heads.init_classification, vectors=heads.PAIR_FEATURES)
        return super().head()._replace(init=init, logits=logits)


def _index_labels(labels: Sequence[str]) -> dict[str, int]:
    return {label: number for number, label in enumerate(labels)}


def _require_pairs(examples: Sequence[Sentences]) -> None:
    """Raises a `ConfigError` if an example is not two non-empty sentences."""
    single = [example.place for example in examples if len(example.texts) == 1]
    if single:
        raise ConfigError(
            f"{single[0]}: the example has one sentence, but task.pairs=apart needs two; set "
            "task.pairs=together"
        )
    with_empty = [example.place for example in examples if not all(map(str.strip, example.texts))]
    if with_empty:
        raise ConfigError(
            f"{with_empty[0]}: a sentence is empty, but task.pairs=apart needs two; "
            "remove the example or set task.pairs=together"
        )
