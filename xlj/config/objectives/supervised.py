"""The objectives of fine-tuning. They are no part of a pretraining config: a fine-tuning run has
one of them in the place of the others."""

import dataclasses
import functools
from collections.abc import Mapping

from xlj.config import tasks
from xlj.config.fields import ConfigTree
from xlj.config.objectives.options import Options


@dataclasses.dataclass(frozen=True)
class Supervised(Options, path="train"):
    """The options of an objective of fine-tuning; it reads a kind of rows of its own.

    Attributes:
      length: tokens in a row; its labels come behind them.
      labels: names of classes or tags; empty for kinds without.
    """

    implementation = "xlj.objectives.supervised:objective"
    sampled_by = "rows"

    length: int = 0
    labels: tuple[str, ...] = ()

    def path(self, name: str) -> str:
        """Where `batch_rows` is in a fine-tuning config."""
        return "train"

    def text_length(self, length: int) -> int:
        """The tokens of a row, without its labels."""
        return self.length

    @property
    def task_kind(self) -> str:
        """The kind of task, as `tasks.load` takes it."""
        return self.rows


@dataclasses.dataclass(frozen=True)
class OwnTask(Supervised):
    """The options of a user's own kind of task, whose checkpoints name it.

    Attributes:
      kind: `module:function`.
    """

    kind: str = ""

    @property
    def task_kind(self) -> str:
        """The kind of task, `module:function`."""
        return self.kind


@functools.cache
def supervised(kind: str) -> type[Supervised]:
    """The options of the objective of a kind of task, as `tasks.load` takes it. The name of their
    rows is the kind's name, and so is that of the objective."""
    own = tasks.is_own(kind)
    name = tasks.load(kind).name if own else kind
    made: type[Supervised] = type(name, (OwnTask if own else Supervised,), {"rows": name})
    return made


def recorded_kind(record: ConfigTree) -> str:
    """The kind of task that the config of a checkpoint was fine-tuned on; empty if on none."""
    for name, options in record["objectives"].items():
        if name in SUPERVISED:
            return str(name)
        if isinstance(options, Mapping) and tasks.is_own(str(options.get("kind", ""))):
            return str(options["kind"])
    return ""


def supervised_in(record: ConfigTree) -> ConfigTree:
    """The options of fine-tuning in a config as a checkpoint records it; none of pretraining."""
    kind = recorded_kind(record)
    for name, options in record["objectives"].items():
        if kind and (name == kind or isinstance(options, Mapping) and options.get("kind") == kind):
            return dict(options)
    return {}


SUPERVISED: dict[str, type[Supervised]] = {
    name: supervised(name) for name in (*tasks.KINDS, *tasks.VARIANTS)
}
"""The objectives of xlj's own kinds of tasks, by name."""
