"""Determines the labels of a task, and refuses examples whose labels do not fit."""

from collections.abc import Iterable, Sequence

from xlj.config.fields import ConfigError, suggestion
from xlj.data.labelled.examples import Example
from xlj.io.quoting import quoted


def label_set(training: Iterable[Example], named: Sequence[str]) -> tuple[str, ...]:
    """Returns the labels or tags of a task, in the order of their indices.

    These are the labels that the config names, or else all labels of the training data, sorted.
    Questions have none.

    Raises:
      ConfigError: if a training example has no label or a label that is not in `named`, or if there
        is only one label.
    """
    training = list(training)
    require(training)
    if named:
        check(training, named)
    known = named or sorted({label for example in training for label in example.labels or ()})
    if len(known) == 1:
        raise ConfigError(
            f"{training[0].where}: {quoted(known[0])} is the only label of the task, so there is "
            "nothing to learn; check task.columns"
        )
    return tuple(known)


def require(examples: Iterable[Example]) -> None:
    """Refuses unlabelled examples, and questions without known answers.

    Raises:
      ConfigError: on the first such example, with its place.
    """
    for example in examples:
        if example.labels is None:
            hint = example.hint or "check task.columns"
            raise ConfigError(f"{example.where}: this example has no {example.what}; {hint}")


def check_all_or_none(examples: Iterable[Example]) -> None:
    """Refuses examples if some are labelled and some are not.

    Raises:
      ConfigError: with the place of the first unlabelled example.
    """
    sides: dict[bool, Example] = {}
    for example in examples:
        sides.setdefault(example.labels is None, example)
    if len(sides) == 2:
        unlabelled, labelled = sides[True], sides[False]
        hint = f"; {unlabelled.hint}" if unlabelled.hint else ""
        raise ConfigError(
            f"{unlabelled.where}: this example has no {unlabelled.what}, but {labelled.where} "
            f"has{hint}"
        )


def check(examples: Iterable[Example], labels: Sequence[str]) -> None:
    """Refuses labels and tags that are not in `labels`; accepts unlabelled examples.

    Raises:
      ConfigError: on the first such label, with its place.
    """
    known = set(labels)
    for example in examples:
        own = example.labels or ()
        if known.issuperset(own):
            continue
        index, label = next(item for item in enumerate(own) if item[1] not in known)
        part = example.part_of(index)
        of = f" of {quoted(part)}" if part else ""
        raise ConfigError(
            f"{example.place_of(index)}: {quoted(label)}{of} is not a label of the task, which has "
            f"{', '.join(labels)} (task.labels, or the labels of the training data)"
            f"{suggestion(label, labels)}"
        )
