"""Classification of sentences and of pairs: rows, predictions, scores, files."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from xlj.config import ConfigError
from xlj.config.finetuning import Task
from xlj.data.labelled import features
from xlj.data.labelled.examples import Sentences
from xlj.data.labelled.features import Features
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics.shares import accuracy

ENDING = "tsv"


def rows(
    examples: Sequence[Sentences], vocabulary: Vocabulary, labels: Sequence[str], task: Task
) -> Features:
    """The rows of examples. Raises ConfigError if pairs are read apart, and an example is one
    sentence, or one of two is empty."""
    apart = task.pairs == "apart"
    alone = [example.place for example in examples if len(example.texts) == 1]
    if apart and alone:
        raise ConfigError(
            f"{alone[0]}: this is one sentence, and task.pairs=apart compares two; set "
            "task.pairs=together"
        )
    empty = [example.place for example in examples if not all(map(str.strip, example.texts))]
    if apart and empty:
        raise ConfigError(f"{empty[0]}: task.pairs=apart compares two sentences, and one is empty")
    numbers = {label: number for number, label in enumerate(labels)}
    return features.of_sentences(examples, vocabulary, numbers, task.length, apart)


def decode(
    outputs: np.ndarray,
    made: Features,
    examples: Sequence[Sentences],
    labels: Sequence[str],
    task: Task,
) -> list[str]:
    """The label of each example, from the class of each row."""
    return [labels[number] for number in outputs]


def majority(training: Sequence[Sentences]) -> Callable[[Sequence[Sentences]], list[str]]:
    """A function that predicts the most frequent label of the training data, for every example."""
    label = Counter(e.label for e in training if e.label).most_common(1)[0][0]
    return lambda examples: [label] * len(examples)


def labelled(examples: Sequence[Sentences]) -> bool:
    """Whether all labels are known, so that predictions can be scored."""
    return all(example.label is not None for example in examples)


def scores(
    predicted: Sequence[str], examples: Sequence[Sentences], metric: str, language: str
) -> dict[str, float]:
    """Shares by metric, the task's own first."""
    return {"accuracy": accuracy(predicted, [example.label for example in examples])}


def to_text(predicted: Sequence[str]) -> str:
    """XTREME's file of predictions: a label a line."""
    return "".join(f"{label}\n" for label in predicted)
