"""Options of the fine-tuning objectives.

They are not in the schema of pretraining. A fine-tuning run has exactly one of them.
"""

import dataclasses
import functools
from collections.abc import Mapping

from xlj.config import task
from xlj.config.fields import ConfigTree
from xlj.config.objectives import Options


@dataclasses.dataclass(frozen=True)
class Supervised(Options, path="task"):
    """The options of a fine-tuning objective, which reads the rows of a kind of task.

    Attributes:
      length: number of tokens in a row.
      labels: names of the classes or tags; empty for kinds of task without labels.
      loss: `task.loss`.
    """

    implementation = "xlj.objectives.supervised.loss:objective"
    sampled_by = "rows"

    length: int = 0
    labels: tuple[str, ...] = ()
    loss: str = ""

    def path(self, name: str) -> str:
        """Returns the section of `batch_size` in a fine-tuning config."""
        return "task"

    @property
    def rows_name(self) -> str:
        """The name of the rows in a row store."""
        return self.rows

    @property
    def task_kind(self) -> str:
        """The kind of task, for `task.load`."""
        return self.rows

    @property
    def token_axes(self) -> Mapping[str, tuple[int, ...]]:
        """The axes of the kind of task."""
        axes: Mapping[str, tuple[int, ...]] = task.load(self.task_kind).token_axes
        return axes


@dataclasses.dataclass(frozen=True)
class OwnTask(Supervised):
    """The options of a user's own kind of task. Checkpoints store the name of the kind.

    Attributes:
      kind: `module:function`.
    """

    kind: str = ""

    @property
    def task_kind(self) -> str:
        """The kind of task, `module:function`."""
        return self.kind

    @property
    def token_axes(self) -> Mapping[str, tuple[int, ...]]:
        """The axes that the class of the kind itself names: it may have fields that its base class
        lacks."""
        own: Mapping[str, tuple[int, ...]] = vars(type(task.load(self.kind))).get("token_axes", {})
        return own


@functools.cache
def supervised(kind: str) -> type[Supervised]:
    """Returns the class of options for a kind of task. The rows and the objective of a kind have
    the name of the kind.

    Args:
      kind: a name in `task.KINDS` or `task.VARIANTS`, or `module:function`.
    """
    is_own = task.is_own(kind)
    name = task.load(kind).name if is_own else kind
    options: type[Supervised] = type(name, (OwnTask if is_own else Supervised,), {"rows": name})
    return options


def recorded_kind(record: ConfigTree) -> str:
    """Returns the kind of task in the config of a fine-tuned checkpoint; empty for pretraining."""
    for name, options in record["objectives"].items():
        if name in SUPERVISED:
            return str(name)
        if isinstance(options, Mapping) and task.is_own(str(options.get("kind", ""))):
            return str(options["kind"])
    return ""


def supervised_in(record: ConfigTree) -> ConfigTree:
    """Returns the fine-tuning options in the config of a checkpoint; empty for pretraining."""
    kind = recorded_kind(record)
    for name, options in record["objectives"].items():
        if kind and (name == kind or isinstance(options, Mapping) and options.get("kind") == kind):
            return dict(options)
    return {}


SUPERVISED: dict[str, type[Supervised]] = {
    name: supervised(name) for name in (*task.KINDS, *task.VARIANTS)
}
"""The classes of options for the kinds of tasks that xlj has, by name."""
