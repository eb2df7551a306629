"""Heads of transformers' classes: names of the classes, and keys of config.json about a task.

A kind of task names its class (`TaskKind.hugging_face`), an architecture the tensors of its heads.
"""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from xlj.config import ConfigError, tasks
from xlj.data.labelled import kind
from xlj.data.labelled.kind import HuggingFace
from xlj.interop.architectures.table import Architecture
from xlj.io.json_file import Record

_SINGLE_LABEL = "single_label_classification"  # what transformers takes where config.json is silent
_OTHERS = {"": "", "prediction_head": "ForMaskedLM"}


def _classes() -> tuple[dict[str, str], dict[str, str]]:
    """`CLASSES` and `TASKS`."""
    classes, kinds = dict(_OTHERS), dict[str, str]()
    for name in (*tasks.KINDS, *tasks.VARIANTS):
        theirs = kind.find(name).hugging_face
        if theirs:
            kinds[f"{name}_head"] = name
        if theirs and not theirs.like:
            classes[f"{name}_head"] = theirs.ending
    return classes, kinds


CLASSES, TASKS = _classes()
"""How the names of classes end, by the heads whose tensors architectures name; the kinds of xlj's
tasks that transformers has a class for, by head."""


def of_head(head: str, own: str = "") -> HuggingFace | None:
    """What transformers has for the head of a task; None if it is none, or transformers has none.

    Args:
      own: the kind, if it is a user's own.
    """
    return kind.find(own or TASKS[head]).hugging_face if own or head in TASKS else None


def auto_class(head: str, own: str = "") -> str:
    """The class of transformers that loads a model with this head, whatever its architecture."""
    theirs = of_head(head, own)
    return f"AutoModel{theirs.ending if theirs else CLASSES[head]}"


def classes_of(family: str, heads: Collection[str] = tuple(CLASSES)) -> dict[str, str]:
    """The classes of a family, by the heads that it has."""
    return {head: family + (CLASSES[head] or "Model") for head in heads}


def with_head(architecture: Architecture, head: str, own: str = "") -> Architecture:
    """The architecture with the tensors and the class of a head that is like another that it names;
    as it is, if it has none such."""
    theirs = of_head(head, own)
    if theirs is None or theirs.like not in architecture.classes:
        return architecture
    tensors = [
        tensor._replace(ours=tensor.ours.replace(theirs.like, head, 1))
        for tensor in architecture.tensors
        if tensor.head == theirs.like
    ]
    family = architecture.classes[""].removesuffix("Model")
    return dataclasses.replace(
        architecture,
        tensors=(*architecture.tensors, *tensors),
        classes={**architecture.classes, head: family + theirs.ending},
    )


def labels_of(config: Record, where: str) -> tuple[str, ...]:
    """The names of classes or tags that a config.json gives, in the order of the head; a
    ConfigError if they are not numbered from 0."""
    names = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}  # what transformers takes
    numbers = [str(number) for number in range(len(names))]
    labels: list[Any] = [names.get(n) for n in numbers] if isinstance(names, dict) else []
    if not all(isinstance(label, str) for label in labels) or len({*labels}) < len(names):
        raise ConfigError(f"{where}: id2label must be distinct names by the numbers from 0")
    return tuple(labels)


def task_head_of(architecture: Architecture, config: Record, tensors: Collection[str]) -> str:
    """The head of a fine-tuned task that a folder has, if its config.json names the class and the
    type of problem, and all of its tensors are there; else nothing."""
    problem = config.get("problem_type") or _SINGLE_LABEL
    is_number = len(config.get("id2label") or "01") == 1  # of regression, or a cross-encoder's
    for head in TASKS:
        theirs, able = of_head(head), with_head(architecture, head)
        name = able.classes.get(head)
        if theirs is None or name is None or name not in (config.get("architectures") or ()):
            continue
        if is_number != (theirs.problem_type == "regression"):
            continue  # no choice, or several numbers, of which xlj has no task
        if problem == (theirs.problem_type or _SINGLE_LABEL):
            whole = [tensor.theirs for tensor in able.tensors if tensor.head == head]
            return head if whole and {*whole} <= {*tensors} else ""
    return ""


def is_of_task(config: Record) -> bool:
    """Whether a config.json names a class with the head of a task other than masked tokens."""
    endings = (str(name).partition("For")[2] for name in config.get("architectures") or ())
    return any(ending not in ("", "MaskedLM") for ending in endings)


def config_of_task(head: str, labels: Sequence[str], own: str = "") -> Record:
    """The part of config.json about the head of a fine-tuned task and its labels, if it has any."""
    theirs = of_head(head, own)
    if theirs is None:
        return {}
    config: Record = {"problem_type": theirs.problem_type} if theirs.problem_type else {}
    if labels:
        config["id2label"] = dict(enumerate(labels))
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    return config
