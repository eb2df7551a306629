"""The table of kinds of fine-tuning tasks, to which a new one is added."""

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
"""Kinds of tasks by name: `module:function`, where the function takes nothing and returns a
`data.labelled.kind.TaskKind`. `task.kind` may name a user's own in the same way."""

VARIANTS = {"pair_classification": "xlj.tasks.classification:PairClassification"}
"""Kinds that another key of the task chooses (`TaskKind.chosen_by`)."""


@cache
def load(kind: str) -> Any:
    """The `TaskKind` of a kind: one of `KINDS` or `VARIANTS`, or `module:function`.

    Raises:
      ConfigError: if there is none, or a user's own has no name of its own.
    """
    implementation = (KINDS | VARIANTS).get(kind, kind)
    if ":" not in implementation:
        raise ConfigError(
            f"task.kind is {kind!r}; it must be one of {', '.join(KINDS)}, or module:function"
            f"{suggestion(kind, KINDS)}"
        )
    function = function_of(implementation, "task.kind")
    try:
        made = function()
    except Exception as error:  # of the module's own
        raise ConfigError(f"task.kind={kind}: {type(error).__name__}: {error}") from error
    name = getattr(made, "name", "")
    if not isinstance(name, str) or not name.isidentifier() or not getattr(made, "metrics", ()):
        raise ConfigError(
            f"task.kind={kind}: the function must return a TaskKind with a name, an identifier, "
            "and metrics"
        )
    if is_own(kind) and name in KINDS | VARIANTS:
        raise ConfigError(f"task.kind={kind}: its name {name} is that of a kind of xlj's")
    return made


def is_own(kind: str) -> bool:
    """Whether a kind is a user's own, `module:function`."""
    return ":" in kind


def read_by_kind(config: Any, path: str) -> Unused | None:
    """Says that a key is read by the kinds of tasks whose `reads` name it."""
    kind = config.task.kind
    if path.removeprefix("task.") in load(kind).reads:
        return None
    readers = [name for name in KINDS if path.removeprefix("task.") in load(name).reads]
    return Unused(f"task.kind is {kind!r}, not {' or '.join(readers)}")
