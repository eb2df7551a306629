"""The labels of a task: those given or those that training has, and examples that do not fit."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from xlj.config import ConfigError
from xlj.data.labelled.examples import Example, Question, Sentences, Words


def label_set(training: Iterable[Example], given: Sequence[str]) -> tuple[str, ...]:
    """The labels or tags of a task, in the order of their indices: those given, or else all that
    the training data has, sorted. Questions have none.

    Raises:
      ConfigError: if a training example has no label, or one that is not among those given, or
        there is one label only.
    """
    training = list(training)
    require(training)
    if given:
        check(training, given)
    known = given or sorted({label for example in training for label in labels_of(example) or ()})
    if len(known) == 1:
        raise ConfigError(
            f"{training[0].place}: {known[0]!r} is the task's only label, so there is nothing to "
            "learn; is task.columns right?"
        )
    return tuple(known)


def require(examples: Iterable[Example]) -> None:
    """Nothing, if all sentences have labels and all words tags. Questions may be without an answer.

    Raises:
      ConfigError: on an example without; it names its place.
    """
    for example in examples:
        if labels_of(example) is None:
            what = "label" if isinstance(example, Sentences) else "tags"
            raise ConfigError(f"{example.place}: it has no {what}; is task.columns right?")


def check(examples: Iterable[Example], labels: Sequence[str]) -> None:
    """Nothing, if all labels and tags are among `labels`; examples without any are let pass.

    Raises:
      ConfigError: on another one; it names the example's place.
    """
    known = set(labels)
    for example in examples:
        found = labels_of(example) or ()
        if known.issuperset(found):
            continue
        index, label = next(item for item in enumerate(found) if item[1] not in known)
        where = f" of {example.words[index]!r}" if isinstance(example, Words) else ""
        close = difflib.get_close_matches(label, labels, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(
            f"{example.place}: {label!r}{where} is no label of the task, which has "
            f"{', '.join(labels)} (task.labels, or those of the training data){hint}"
        )


def labels_of(example: Example) -> tuple[str, ...] | None:
    """The label of a sentence or pair, or the tags of words; None where the source has none."""
    if isinstance(example, Sentences):
        return None if example.label is None else (example.label,)
    return () if isinstance(example, Question) else example.tags
