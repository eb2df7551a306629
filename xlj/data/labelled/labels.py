"""The labels of a task: those given or those that training has, and examples that do not fit."""

from collections.abc import Iterable, Sequence

from xlj.config.fields import ConfigError, suggestion
from xlj.data.labelled.examples import Example
from xlj.io.quoting import quoted


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
    known = given or sorted({label for example in training for label in example.labels or ()})
    if len(known) == 1:
        raise ConfigError(
            f"{training[0].where}: {quoted(known[0])} is the task's only label, so there is "
            "nothing to learn; is task.columns right?"
        )
    return tuple(known)


def require(examples: Iterable[Example]) -> None:
    """Refuses unlabelled examples, and questions whose answers are not told, by a `ConfigError`
    that names the place."""
    for example in examples:
        if example.labels is None:
            mend = example.mend or "is task.columns right?"
            raise ConfigError(f"{example.where}: it has no {example.what}; {mend}")


def alike(examples: Iterable[Example]) -> None:
    """Refuses examples of which some are labelled, some are not, by a `ConfigError` that names the
    place of the first one that is not."""
    sides: dict[bool, Example] = {}
    for example in examples:
        sides.setdefault(example.labels is None, example)
    if len(sides) == 2:
        bare, other = sides[True], sides[False]
        mend = f"; {bare.mend}" if bare.mend else ""
        raise ConfigError(
            f"{bare.where}: it has no {bare.what}, though that of {other.where} is told{mend}"
        )


def check(examples: Iterable[Example], labels: Sequence[str]) -> None:
    """Refuses labels and tags that are not among `labels`, by a `ConfigError` that names the place;
    examples without any are let pass."""
    known = set(labels)
    for example in examples:
        found = example.labels or ()
        if known.issuperset(found):
            continue
        index, label = next(item for item in enumerate(found) if item[1] not in known)
        part = example.part_of(index)
        of = f" of {quoted(part)}" if part else ""
        raise ConfigError(
            f"{example.place_of(index)}: {quoted(label)}{of} is no label of the task, which has "
            f"{', '.join(labels)} (task.labels, or those of the training data)"
            f"{suggestion(label, labels)}"
        )
