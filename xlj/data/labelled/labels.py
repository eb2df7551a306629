"""The labels of a task: those given or those that training has, and examples that do not fit."""

from collections.abc import Iterable, Sequence

from xlj.config.fields import ConfigError, meant
from xlj.data.labelled.examples import Example, Question, Sentences, Words
from xlj.io.quoting import quoted

_MEND = "of a question without an answer say is_impossible, as SQuAD 2.0"


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
            f"{training[0].place}: {quoted(known[0])} is the task's only label, so there is "
            "nothing to learn; is task.columns right?"
        )
    return tuple(known)


def require(examples: Iterable[Example]) -> None:
    """Refuses unlabelled sentences or words, and questions whose answers are not told, by a
    `ConfigError` that names the place."""
    for example in examples:
        if labels_of(example) is None:
            mend = _MEND if isinstance(example, Question) else "is task.columns right?"
            raise ConfigError(f"{example.place}: it has no {_what(example)}; {mend}")


def alike(examples: Iterable[Example]) -> None:
    """Refuses examples of which some are labelled, some are not, by a `ConfigError` that names the
    place of the first one that is not."""
    sides: dict[bool, Example] = {}
    for example in examples:
        sides.setdefault(labels_of(example) is None, example)
    if len(sides) == 2:
        bare, other = sides[True], sides[False]
        mend = f"; {_MEND}" if isinstance(bare, Question) else ""
        raise ConfigError(
            f"{bare.place}: it has no {_what(bare)}, though that of {other.place} is told{mend}"
        )


def check(examples: Iterable[Example], labels: Sequence[str]) -> None:
    """Refuses labels and tags that are not among `labels`, by a `ConfigError` that names the place;
    examples without any are let pass."""
    known = set(labels)
    for example in examples:
        found = labels_of(example) or ()
        if known.issuperset(found):
            continue
        index, label = next(item for item in enumerate(found) if item[1] not in known)
        where, place = "", example.place
        if isinstance(example, Words):
            where, place = f" of {quoted(example.words[index])}", example.place_of(index)
        raise ConfigError(
            f"{place}: {quoted(label)}{where} is no label of the task, which has "
            f"{', '.join(labels)} (task.labels, or those of the training data)"
            f"{meant(label, labels)}"
        )


def labels_of(example: Example) -> tuple[str, ...] | None:
    """The label or tags of an example, nothing of a question; None where the source has none, or
    does not tell the question's answers."""
    if isinstance(example, Sentences):
        return None if example.label is None else (example.label,)
    if isinstance(example, Question):
        return None if example.answers is None else ()
    return example.tags


def _what(example: Example) -> str:
    return {Sentences: "label", Words: "tags", Question: "answers"}[type(example)]
