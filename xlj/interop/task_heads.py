"""Task heads in transformers: names of the classes, and keys of config.json about a task.

Each kind of task declares its class in transformers (`TaskKind.hugging_face`). Each architecture
declares the tensors of its heads.
"""

import dataclasses
import re
from collections.abc import Collection, Sequence
from typing import Any

from xlj import families
from xlj.config import ConfigError, Model, task
from xlj.data.labelled import kind
from xlj.data.labelled.kind import HuggingFace
from xlj.families.interface import Architecture
from xlj.io.json_file import Record
from xlj.objectives.supervised.head import head_of, of_kind

_SINGLE_LABEL = "single_label_classification"  # transformers' default for several labels
_REGRESSION = "regression"  # and for one label
_WITHOUT_TASK = {"": "Model", "prediction_head": "ForMaskedLM"}


TASKS = {
    f"{name}_head": name
    for name in (*task.KINDS, *task.VARIANTS)
    if kind.find(name).hugging_face is not None
}
"""The kind of task of each task head that has a class in transformers."""


def hf_task_of(head: str, own: str = "") -> HuggingFace | None:
    """Returns the description of transformers' class for a task head.

    Args:
      own: the name of the kind of task if user code defines this kind; empty for xlj's kinds.

    Returns:
      The description; None if the head is not a task head, or transformers has no class for it.
    """
    return kind.find(own or TASKS[head]).hugging_face if own or head in TASKS else None


def class_of(prefix: str, head: str, own: str = "") -> str:
    """Returns the name of transformers' class, e.g. BertForMaskedLM for `prediction_head`.

    Args:
      prefix: `class_prefix` of the architecture.
    """
    hf_task = hf_task_of(head, own)
    return prefix + (hf_task.ending if hf_task else _WITHOUT_TASK[head])


def auto_class(head: str, own: str = "") -> str:
    """Returns the `AutoModel` class of transformers that loads a model with this head."""
    return class_of("AutoModel", head, own) if head else "AutoModel"


def with_head(architecture: Architecture, head: str, own: str = "") -> Architecture:
    """Adds a head that has the tensors of another head (`HuggingFace.like`) to an architecture.

    Returns the architecture unchanged if it lacks the other head.
    """
    hf_task = hf_task_of(head, own)
    if hf_task is None or not hf_task.like or hf_task.like not in architecture.heads:
        return architecture
    tensors = [
        tensor._replace(xlj_name=tensor.xlj_name.replace(hf_task.like, head, 1))
        for tensor in architecture.tensors
        if tensor.head == hf_task.like
    ]
    return dataclasses.replace(architecture, tensors=(*architecture.tensors, *tensors))


def why_not(architecture: Architecture, head: str, model: Model, own: str = "") -> str:
    """Returns why transformers has no class with a task head of xlj; empty if it has one.

    Args:
      own: the name of the kind of task if user code defines this kind; empty for xlj's kinds.
    """
    own = own if own and head == head_of(own) else ""
    if hf_task_of(head, own) is None:
        return "the kind of task has no transformers class for this architecture"
    name = class_of(architecture.class_prefix, head, own)
    if head not in architecture.heads:
        return f"transformers has no {name}"
    _, family = families.of_model_type(architecture.model_type)
    layers = {family.options.get("task_head", Model().task_head), model.task_head}
    by_token = of_kind(own or TASKS[head]).by_token
    if len(layers) > 1 and ("gelu_norm" in layers or not by_token):
        return f"the head of {name} has other layers than model.task_head={model.task_head}"
    if not by_token and model.task_pooling not in architecture.poolings:
        return f"{name} does not support model.task_pooling={model.task_pooling}"
    return ""


def _count_labels(config: Record) -> int:
    return len(config.get("id2label") or range(config.get("num_labels") or 2))


def read_labels(config: Record, where: str) -> tuple[str, ...]:
    """Returns the labels in a config.json, in the order of the head's outputs.

    Raises:
      ConfigError: if the labels are not numbered 0, 1, 2, ..., or not distinct.
    """
    names = config.get("id2label")
    if not names:  # transformers' default
        names = {str(number): f"LABEL_{number}" for number in range(_count_labels(config))}
    numbers = [str(number) for number in range(len(names))]
    labels: list[Any] = [names.get(n) for n in numbers] if isinstance(names, dict) else []
    if not all(isinstance(label, str) for label in labels) or len({*labels}) < len(names):
        raise ConfigError(f"{where}: id2label must map the numbers 0, 1, 2, ... to distinct names")
    return tuple(labels)


def find_task_head(architecture: Architecture, config: Record, tensors: Collection[str]) -> str:
    """Finds the task head of a Hugging Face folder.

    The config.json must name the head's class and problem type, and all tensors must exist.

    Args:
      tensors: the names of the folder's tensors.

    Returns:
      The head, e.g. `tagging_head`; empty if there is no head that xlj supports.
    """
    is_regression = _count_labels(config) == 1  # regression, or a cross-encoder
    problem = config.get("problem_type") or (_REGRESSION if is_regression else _SINGLE_LABEL)
    for head in TASKS:
        hf_task, extended = hf_task_of(head), with_head(architecture, head)
        name = class_of(architecture.class_prefix, head)
        classes = config.get("architectures") or ()
        if hf_task is None or head not in extended.heads or name not in classes:
            continue
        if is_regression != (hf_task.problem_type == _REGRESSION):
            # xlj has no classification with one label, and no regression of several numbers.
            continue
        if problem == (hf_task.problem_type or _SINGLE_LABEL):
            names = {tensor.hf_name for tensor in extended.tensors if tensor.head == head}
            if architecture.has_shared_head:  # config.json determines which biases the layers have
                names -= {name for name in names if re.fullmatch(r"head\..*bias", name)}
            return head if names and names <= {*tensors} else ""
    return ""


def has_task_head(config: Record) -> bool:
    """Returns whether a config.json names a class with a task head.

    The head for masked tokens (`ForMaskedLM`) is not a task head.
    """
    endings = (str(name).partition("For")[2] for name in config.get("architectures") or ())
    return any(ending not in ("", "MaskedLM") for ending in endings)


def make_task_config(head: str, labels: Sequence[str], own: str = "") -> Record:
    """Returns the keys of config.json that describe a task head and its labels."""
    hf_task = hf_task_of(head, own)
    if hf_task is None:
        return {}
    config: Record = {"problem_type": hf_task.problem_type} if hf_task.problem_type else {}
    if labels:
        config["num_labels"] = len(labels)
        config["id2label"] = dict(enumerate(labels))
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    return config
