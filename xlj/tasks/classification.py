"""Classification of a sentence, or of two: read together, or apart.

Rows: the label is 1 + the class, one number; 0 where there is none.
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

PAIRS = "The tokenizer frames a pair as in training: one separator between its two texts."
"""The remark of model cards of kinds that read pairs."""


class Classification(TaskKind):
    """A class of a sentence, or of two that are read together."""

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
        """The examples of a table or of records."""
        return tables.read(path, task.columns, task.labels, task.names)

    def rows(
        self,
        examples: Sequence[Sentences],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """An example a row, of one text or two."""
        return features.of_sentences(examples, vocabulary, _numbers(labels), task.length)

    def head(self) -> Any:
        """RoBERTa's head of classification, on the vector of `<s>`."""
        from xlj.models import heads
        from xlj.objectives.task_heads import TaskHead, cross_entropy

        return TaskHead(
            init=heads.init_classification,
            logits=lambda head, model, hidden, _, rngs: heads.classify(
                head, model, hidden[:, 0], rngs
            ),
            losses=cross_entropy(lambda found: found[:, None]),
        )

    def decode(
        self,
        outputs: np.ndarray,
        made: Features,
        examples: Sequence[Sentences],
        labels: Sequence[str],
        task: Task,
    ) -> list[str]:
        """The label of each example, from the class of each row."""
        return [labels[number] for number in outputs]

    def majority(self, training: Sequence[Sentences]) -> Callable[[Sequence[Sentences]], list[str]]:
        """Predicts the most frequent label of the training data, for every example."""
        label = Counter(e.label for e in training if e.label).most_common(1)[0][0]
        return lambda examples: [label] * len(examples)

    def scores(
        self, predicted: Sequence[str], examples: Sequence[Sentences], metric: str, language: str
    ) -> dict[str, float]:
        """Accuracy."""
        return {"accuracy": accuracy(predicted, [example.label for example in examples])}

    def from_fields(self, fields: Sequence[str], place: str) -> Sentences:
        """A text, or two with a tab between."""
        return Sentences(kind.one_or_two(fields, place), None, place)

    def from_record(self, record: Mapping[str, Any], place: str) -> Sentences:
        """`text` and perhaps `text_pair`, or other usual names of both."""
        return Sentences(kind.texts_of(record, place), None, place)

    def describe(
        self,
        logits: np.ndarray,
        made: Features,
        examples: Sequence[Sentences],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """`label`, its `probability`, and the `probabilities` of all."""
        best = self.decode(logits.argmax(-1), made, examples, labels, task)
        chances = kind.probabilities(logits).tolist()
        return [
            {
                "label": label,
                "probability": max(of),
                "probabilities": dict(zip(labels, of, strict=True)),
            }
            for label, of in zip(best, chances, strict=True)
        ]

    def to_fields(self, described: Record) -> list[str]:
        """The label and its probability."""
        return [described["label"], f"{described['probability']:.6f}"]


class PairClassification(Classification):
    """A class of two sentences that are read apart: their mean vectors are compared. A row is
    `<s> A </s> <s> B </s>`, two examples of an encoder."""

    name = "pair_classification"
    hugging_face = None

    @property
    def chosen_by(self) -> Mapping[str, str]:
        """Classification with `task.pairs=apart`."""
        return {"kind": "classification", "pairs": "apart"}

    def rows(
        self,
        examples: Sequence[Sentences],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """A pair a row. Refuses an example of one sentence, or of two of which one is empty."""
        _require_pairs(examples)
        return features.of_sentences(examples, vocabulary, _numbers(labels), task.length, True)

    def from_fields(self, fields: Sequence[str], place: str) -> Sentences:
        """Two texts with a tab between."""
        example = super().from_fields(fields, place)
        _require_pairs([example])
        return example

    def from_record(self, record: Mapping[str, Any], place: str) -> Sentences:
        """`text` and `text_pair`, or other usual names of both."""
        example = super().from_record(record, place)
        _require_pairs([example])
        return example

    def head(self) -> Any:
        """A head of classification, on InferSent's features of both mean vectors."""
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
    """Refuses what pairs read apart cannot be."""
    alone = [example.place for example in examples if len(example.texts) == 1]
    if alone:
        raise ConfigError(
            f"{alone[0]}: this is one sentence, and task.pairs=apart compares two; set "
            "task.pairs=together"
        )
    empty = [example.place for example in examples if not all(map(str.strip, example.texts))]
    if empty:
        raise ConfigError(f"{empty[0]}: task.pairs=apart compares two sentences, and one is empty")
