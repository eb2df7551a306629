"""Table of the kinds of fine-tuning tasks, which users can extend."""

from functools import cache
from typing import Any

from xlj.config.fields import ConfigError, Unused, suggestion
from xlj.config.user_code import function_of

KINDS = {
    "classification": "xlj.tasks.classification:Classification",
    "tagging": "xlj.tasks.tagging:Tagging",
    "question_answering": "xlj.tasks.question_answering:QuestionAnswering",
    "regression": "xlj.tasks.regression:Regression",
    "multiple_choice": "xlj.tasks.multiple_choice:MultipleChoice",
}
"""Kinds of tasks by name: `module:function`, where the function takes no arguments and returns a
`data.labelled.kind.TaskKind`. `task.kind` names a user's kind in the same form."""

VARIANTS = {"pair_classification": "xlj.tasks.classification:PairClassification"}
"""Kinds that another key of the task selects (`TaskKind.chosen_by`), in the form of `KINDS`."""


@cache
def load(kind: str) -> Any:
    """Returns the `TaskKind` of a kind.

    Args:
      kind: a name in `KINDS` or `VARIANTS`, or `module:function`.

    Raises:
      ConfigError: if there is no such kind, or if a user's kind has no name, the name of one of
        xlj's kinds, or no metrics.
    """
    implementation = (KINDS | VARIANTS).get(kind, kind)
    if ":" not in implementation:
        raise ConfigError(
            f"task.kind is {kind!r}; it must be one of {', '.join(KINDS)}, or module:function"
            f"{suggestion(kind, KINDS)}"
        )
    function = function_of(implementation, "task.kind")
    try:
        task_kind = function()
    except Exception as error:  # raised by the user's module
        raise ConfigError(f"task.kind={kind}: {type(error).__name__}: {error}") from error
    name, metrics = getattr(task_kind, "name", ""), getattr(task_kind, "metrics", ())
    if not isinstance(name, str) or not name.isidentifier() or not metrics:
        raise ConfigError(
            f"task.kind={kind}: the function must return a TaskKind with metrics and a name that "
            "is an identifier"
        )
    if is_own(kind) and name in KINDS | VARIANTS:
        raise ConfigError(f"task.kind={kind}: xlj already has a kind named {name}; rename yours")
    return task_kind


def is_own(kind: str) -> bool:
    """Whether a kind of task is user code, named `module:function`."""
    return ":" in kind


def read_by_kind(config: Any, path: str) -> Unused | None:
    """Checks that the kind of task reads a key, that is, names it in `reads`."""
    kind = config.task.kind
    if not kind:
        return Unused("task.kind is empty")
    if path.removeprefix("task.") in load(kind).reads:
        return None
    readers = [name for name in KINDS if path.removeprefix("task.") in load(name).reads]
    return Unused(f"task.kind is {kind!r}, not {' or '.join(readers)}")
