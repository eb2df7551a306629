"""Determines the labels of a task, and refuses examples whose labels do not fit."""

from collections.abc import Iterable, Sequence

from xlj.config.fields import ConfigError, suggestion
from xlj.data.labelled.examples import Example
from xlj.io.quoting import quoted


def label_set(training: Iterable[Example], named: Sequence[str]) -> tuple[str, ...]:
    """Returns the labels or tags of a task, in the order of their indices.

    The result is empty if the task has no labels, as for question answering.

    Args:
      training: the training examples.
      named: the labels that the config names. If empty, the labels of the training examples are
        used, sorted.

    Raises:
      ConfigError: if a training example has no label or a label that is not in `named`, or if there
        is only one label.
    """
    training = list(training)
    require(training)
    if named:
        check(training, named)
    labels = named or sorted({label for example in training for label in example.labels or ()})
    if len(labels) == 1:
        raise ConfigError(
            f"{training[0].where}: {quoted(labels[0])} is the only label of the task, so there is "
            "nothing to learn; check task.columns"
        )
    return tuple(labels)


def require(examples: Iterable[Example]) -> None:
    """Checks that all examples are labelled; of a question, the answers must be known.

    Raises:
      ConfigError: on the first unlabelled example; the message names its place.
    """
    for example in examples:
        if example.labels is None:
            hint = example.hint or "check task.columns"
            raise ConfigError(f"{example.where}: this example has no {example.what}; {hint}")


def check_all_or_none(examples: Iterable[Example]) -> None:
    """Checks that either all examples are labelled or no example is.

    Raises:
      ConfigError: if only some examples are labelled; the message names the place of the first
        unlabelled example.
    """
    first_examples: dict[bool, Example] = {}
    for example in examples:
        first_examples.setdefault(example.labels is None, example)
    if len(first_examples) == 2:
        unlabelled, labelled = first_examples[True], first_examples[False]
        hint = unlabelled.hint or "label all examples of a language, or none"
        raise ConfigError(
            f"{unlabelled.where}: this example has no {unlabelled.what}, but the example at "
            f"{labelled.where} has; {hint}"
        )


def check(examples: Iterable[Example], labels: Sequence[str]) -> None:
    """Checks that all labels and tags of examples are in `labels`; accepts unlabelled examples.

    Raises:
      ConfigError: on the first label that is not in `labels`; the message names its place.
    """
    known = set(labels)
    for example in examples:
        example_labels = example.labels or ()
        if known.issuperset(example_labels):
            continue
        index, label = next(item for item in enumerate(example_labels) if item[1] not in known)
        part = example.part_of(index)
        of_part = f" of {quoted(part)}" if part else ""
        raise ConfigError(
            f"{example.place_of(index)}: {quoted(label)}{of_part} is not a label of the task, "
            f"which has {', '.join(labels)} (task.labels, or the labels of the training data)"
            f"{suggestion(label, labels)}"
        )
