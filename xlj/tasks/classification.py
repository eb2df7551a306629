"""Classification of a sentence or of two sentences, which are encoded together or separately.

Rows: the label is one number, 1 + the class; 0 without a label.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.config.finetuning import Task
from xlj.data.labelled import features, kind, tables
from xlj.data.labelled.examples import Sentences
from xlj.data.labelled.features import Features
from xlj.data.labelled.kind import HuggingFace, TaskKind
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics.shares import accuracy
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath

PAIRS = "The tokenizer encodes a pair as in training, with one separator between the two texts."
"""The remark on model cards of kinds that read pairs."""


class Classification(TaskKind):
    """Classifies a sentence, or two sentences that are encoded together."""

    name = "classification"
    metrics = ("accuracy",)
    reads = ("pairs", "columns", "labels", "names")
    example = Sentences
    hugging_face: HuggingFace | None = HuggingFace(
        "ForSequenceClassification",
        "text-classification",
        problem_type="single_label_classification",
        remark=PAIRS,
    )

    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[Sentences]:
        """Reads the examples of a table or of records."""
        return tables.read(path, task.columns, task.labels, task.names)

    def rows(
        self,
        examples: Sequence[Sentences],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """Converts one or two texts per row."""
        return features.of_sentences(examples, vocabulary, _numbers(labels), task.length)

    def head(self) -> Any:
        """Returns RoBERTa's classification head, on the vector of `<s>`."""
        from xlj.models import heads
        from xlj.objectives.task_heads import TaskHead, cross_entropy

        return TaskHead(
            init=heads.init_classification,
            logits=lambda head, model, hidden, _, rngs: heads.classify(
                head, model, hidden[:, 0], rngs
            ),
            losses=cross_entropy(lambda logits: logits[:, None]),
        )

    def decode(
        self,
        outputs: np.ndarray,
        rows: Features,
        examples: Sequence[Sentences],
        labels: Sequence[str],
        task: Task,
    ) -> list[str]:
        """Returns the label of each example, from the class of each row."""
        return [labels[number] for number in outputs]

    def majority(self, training: Sequence[Sentences]) -> Callable[[Sequence[Sentences]], list[str]]:
        """Predicts the most frequent label of the training data for every example."""
        label = Counter(e.label for e in training if e.label).most_common(1)[0][0]
        return lambda examples: [label] * len(examples)

    def scores(
        self, predicted: Sequence[str], examples: Sequence[Sentences], metric: str, language: str
    ) -> dict[str, float]:
        """Computes the accuracy."""
        return {"accuracy": accuracy(predicted, [example.label for example in examples])}

    def from_fields(self, fields: Sequence[str], place: str) -> Sentences:
        """Reads one text, or two with a tab between."""
        return Sentences(kind.check_one_or_two(fields, place), None, place)

    def from_record(self, record: Mapping[str, Any], place: str) -> Sentences:
        """Reads `text` and optionally `text_pair`, or other usual names of both."""
        return Sentences(kind.texts_of(record, place), None, place)

    def describe(
        self,
        logits: np.ndarray,
        rows: Features,
        examples: Sequence[Sentences],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """Returns `label`, its `probability`, and the `probabilities` of all labels."""
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
        """Returns the label and its probability."""
        return [description["label"], f"{description['probability']:.6f}"]


class PairClassification(Classification):
    """Classifies two sentences that are encoded separately, by comparing their mean vectors.

    A row is `<s> A </s> <s> B </s>`, two examples of the encoder.
    """

    name = "pair_classification"
    hugging_face = None

    @property
    def chosen_by(self) -> Mapping[str, str]:
        """It is selected by classification with `task.pairs=apart`."""
        return {"kind": "classification", "pairs": "apart"}

    def rows(
        self,
        examples: Sequence[Sentences],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """Converts one pair per row; refuses examples with one sentence or an empty one."""
        _require_pairs(examples)
        return features.of_sentences(examples, vocabulary, _numbers(labels), task.length, True)

    def from_fields(self, fields: Sequence[str], place: str) -> Sentences:
        """Reads two texts with a tab between."""
        example = super().from_fields(fields, place)
        _require_pairs([example])
        return example

    def from_record(self, record: Mapping[str, Any], place: str) -> Sentences:
        """Reads `text` and `text_pair`, or other usual names of both."""
        example = super().from_record(record, place)
        _require_pairs([example])
        return example

    def head(self) -> Any:
        """Returns a classification head on InferSent's features of both mean vectors."""
        from functools import partial

        from xlj.models import heads
        from xlj.objectives.bitext import averages

        def logits(head: Any, model: Any, hidden: Any, tokens: Any, rngs: Any) -> Any:
            first, second = averages(hidden, tokens, 2).swapaxes(0, 1)
            return heads.classify(head, model, heads.pair_features(first, second), rngs)

        init = partial(heads.init_classification, vectors=heads.PAIR_FEATURES)
        return super().head()._replace(init=init, logits=logits)


def _numbers(labels: Sequence[str]) -> dict[str, int]:
    return {label: number for number, label in enumerate(labels)}


def _require_pairs(examples: Sequence[Sentences]) -> None:
    """Refuses examples that are not two non-empty sentences."""
    alone = [example.place for example in examples if len(example.texts) == 1]
    if alone:
        raise ConfigError(
            f"{alone[0]}: this is one sentence, but task.pairs=apart compares two; set "
            "task.pairs=together"
        )
    empty = [example.place for example in examples if not all(map(str.strip, example.texts))]
    if empty:
        raise ConfigError(f"{empty[0]}: task.pairs=apart compares two sentences, but one is empty")
