"""Heads of transformers' classes: names of the classes, and keys of config.json about a task."""

from collections.abc import Collection, Sequence
from typing import Any

from xlj.config import SUPERVISED, ConfigError
from xlj.interop.architectures.table import Architecture
from xlj.io.json_file import Record
from xlj.objectives.supervised import head_of

CLASSES = {
    "": "",
    "prediction_head": "ForMaskedLM",
    "classification_head": "ForSequenceClassification",
    "tagging_head": "ForTokenClassification",
    "question_answering_head": "ForQuestionAnswering",
}
"""How the names of classes end, by the head that a model has."""

TASKS = {head_of(kind): kind for kind in SUPERVISED if head_of(kind) in CLASSES}
"""Kinds of fine-tuned tasks that transformers has a class for, by the name of their head."""

_SINGLE_LABEL = "single_label_classification"


def auto_class(head: str) -> str:
    """The class of transformers that loads a model with this head, whatever its architecture."""
    return f"AutoModel{CLASSES[head]}"


def classes_of(family: str) -> dict[str, str]:
    """The classes of a family that has one for each head."""
    return {head: family + (ending or "Model") for head, ending in CLASSES.items()}


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
    """The head of a fine-tuned task that a folder has, if its config.json names the class, all of
    its tensors are there, and its labels exclude each other; else nothing."""
    if config.get("problem_type") not in (None, _SINGLE_LABEL):
        return ""
    for head, name in architecture.classes.items():
        whole = [tensor.theirs for tensor in architecture.tensors if tensor.head == head]
        if head in TASKS and name in (config.get("architectures") or ()):
            return head if whole and {*whole} <= {*tensors} else ""
    return ""


def is_of_task(config: Record) -> bool:
    """Whether a config.json names a class with the head of a task other than masked tokens."""
    endings = (str(name).partition("For")[2] for name in config.get("architectures") or ())
    return any(ending not in ("", "MaskedLM") for ending in endings)


def config_of_task(head: str, labels: Sequence[str]) -> Record:
    """The part of config.json about the head of a fine-tuned task and its labels, if it has any."""
    if TASKS.get(head, "question_answering") == "question_answering":
        return {}
    ids = {label: number for number, label in enumerate(labels)}
    only = {"problem_type": _SINGLE_LABEL} if head == head_of("classification") else {}
    return {"id2label": dict(enumerate(labels)), "label2id": ids, **only}
