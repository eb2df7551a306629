"""Tagging of words: rows, predictions, scores, files."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from xlj.config import ConfigError
from xlj.config.finetuning import Task
from xlj.data.labelled import features
from xlj.data.labelled.chunks import CHUNK_TAG
from xlj.data.labelled.examples import Words
from xlj.data.labelled.features import WordFeatures
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics.shares import accuracy
from xlj.evaluation.metrics.tags import chunk_scores
from xlj.io.quoting import shortened

ENDING = "tsv"


def rows(
    examples: Sequence[Words], vocabulary: Vocabulary, labels: Sequence[str], task: Task
) -> WordFeatures:
    """The rows of sentences; a long one has several."""
    numbers = {label: number for number, label in enumerate(labels)}
    return features.of_words(examples, vocabulary, numbers, task.length)


def decode(
    outputs: np.ndarray,
    made: WordFeatures,
    examples: Sequence[Words],
    labels: Sequence[str],
    task: Task,
) -> list[list[str]]:
    """The tag of each word, from that of each token: a word's first piece decides."""
    flat = iter(outputs[made.places[:, 0], made.places[:, 1]].tolist())
    return [[labels[number] for number in itertools.islice(flat, len(e.words))] for e in examples]


def majority(training: Sequence[Words]) -> Callable[[Sequence[Words]], list[list[str]]]:
    """A function that predicts the tag that each word has most often in the training data; of other
    words, the most frequent tag of all."""
    counts: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    for example in training:
        for word, tag in zip(example.words, example.tags or (), strict=True):
            counts.setdefault(word, Counter())[tag] += 1
            total[tag] += 1
    usual = {word: found.most_common(1)[0][0] for word, found in counts.items()}
    other = total.most_common(1)[0][0]
    return lambda examples: [[usual.get(word, other) for word in e.words] for e in examples]


def require_chunks(examples: Iterable[Words], tags: Sequence[str]) -> None:
    """Raises ConfigError, which names the first word with one, on a tag of no chunk."""
    other = {tag for tag in tags if not re.fullmatch(CHUNK_TAG, tag)}
    for example in examples:
        for index, tag in enumerate(example.tags or ()):
            if tag in other:
                raise ConfigError(
                    f"{example.place_of(index)}: {shortened(repr(tag))} is no tag of "
                    "task.metric=chunk_f1, which reads O and such as B-PER; if the tags are in "
                    "another column, name it in task.columns, and if they are no entities, set "
                    "task.metric to word_class_f1 or tag_accuracy"
                )


def labelled(examples: Sequence[Words]) -> bool:
    """Whether all tags are known, so that predictions can be scored."""
    return all(example.tags is not None for example in examples)


def scores(
    predicted: Sequence[Sequence[str]], examples: Sequence[Words], metric: str, language: str
) -> dict[str, float]:
    """Shares by metric, the task's own first."""
    gold = [example.tags or () for example in examples]
    flat = [list(itertools.chain.from_iterable(tags)) for tags in (predicted, gold)]
    right = {"tag_accuracy": accuracy(*flat)}
    if metric == "tag_accuracy":
        return right
    found = chunk_scores(predicted, gold, raw=metric == "word_class_f1")
    return {metric: found.f1, "precision": found.precision, "recall": found.recall} | right


def to_text(predicted: Sequence[Sequence[str]]) -> str:
    """XTREME's file of predictions: a tag a line, a blank line after each sentence."""
    return "".join("".join(f"{tag}\n" for tag in tags) + "\n" for tags in predicted)
