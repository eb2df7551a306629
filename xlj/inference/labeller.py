"""Labels for new text, by a fine-tuned model."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from xlj.config import ConfigError
from xlj.config.finetuning import Task
from xlj.data.labelled import kind
from xlj.data.labelled.examples import Example
from xlj.inference.predictor import Predictor
from xlj.inference.pretrained import Pretrained
from xlj.inference.row_batches import Advance
from xlj.io.json_file import Record
from xlj.objectives.task_heads import head_of
from xlj.sharding.meshes import mesh_of

_CHUNK = 1024  # examples whose rows are made at a time


def task_of(task: Task | None, parts: Iterable[str], source: str) -> Task:
    """The task of a model; a `ConfigError` if it has none, or its head is not there.

    Args:
      parts: names of the model's parameters, or what these begin with.
      source: where the model is, for the error; empty if that is not known.
    """
    if task is None or head_of(task.effective_kind) not in {name.split("/")[0] for name in parts}:
        where = f"{source}: " if source else ""
        raise ConfigError(
            f"{where}the model has no head of a task; name a run of xlj finetune, such as "
            "runs/finetune/NAME/seed-0, or the folder that xlj convert export makes of it"
        )
    return task


class Labeller:
    """Labels examples with a fine-tuned model, as fine-tuning does with its test sets.

    Args:
      pretrained: the model, on any mesh; each process then labels the same examples.
      source: where the model is, for errors.

    Raises:
      ConfigError: if the model was not fine-tuned, or its head is not there.

    Attributes:
      task: how the head is used.
      kind: of the task.
      cut: how many texts so far lost a part, by what they are, as a line of counts says it.
    """

    def __init__(self, pretrained: Pretrained, source: str = ""):
        task = task_of(pretrained.task, pretrained.params, source)
        separators = pretrained.separators
        self.task = dataclasses.replace(task, length=task.length + 1 - separators)
        self.kind = kind.find(task.effective_kind)
        self._pretrained = pretrained
        mesh = mesh_of(pretrained.params)
        self._predict = Predictor(
            task.effective_kind, pretrained.model, mesh, separators, whole=True
        )
        self.cut: dict[str, int] = {}

    def stream(
        self, examples: Iterable[Example | None], progress: Advance = bool
    ) -> Iterator[Record | None]:
        """What the model says of each of any number of examples, in order and bounded memory: an
        object, as `TaskKind.describe` makes it. None stays None.

        Args:
          progress: called with numbers of examples as they are done.
        """
        rest = iter(examples)
        while chunk := list(itertools.islice(rest, _CHUNK)):
            described = iter(self._describe([e for e in chunk if e is not None]))
            yield from (None if example is None else next(described) for example in chunk)
            progress(len(chunk))

    def _describe(self, examples: list[Any]) -> list[Record]:
        if not examples:
            return []
        task, vocabulary = self.task, self._pretrained.vocabulary
        made = self.kind.rows(examples, vocabulary, task.labels, task)
        for what, count in made.cut.items():
            self.cut[what] = self.cut.get(what, 0) + count
        logits = self._predict(self._pretrained.params, made.tokens, "")
        return self.kind.describe(logits, made, examples, task.labels, task)
