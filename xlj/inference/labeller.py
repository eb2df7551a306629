"""Labels new text with a fine-tuned model."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from xlj.config import ConfigError
from xlj.config.task import Task
from xlj.data.labelled import kind
from xlj.data.labelled.examples import Example
from xlj.inference.predictor import Predictor
from xlj.inference.pretrained import Pretrained
from xlj.inference.row_batches import Advance
from xlj.io.json_file import Record
from xlj.objectives.supervised.head import head_of
from xlj.sharding.meshes import mesh_of

_CHUNK = 1024  # how many examples are converted to rows at a time


def task_of(task: Task | None, parts: Iterable[str], source: str) -> Task:
    """Returns the task of a model, and checks that the model has the head of the task.

    Args:
      parts: the top-level names of the model's parameters, or full names such as
        `tagging_head/kernel`.
      source: the path of the model, for the error; empty if unknown.

    Raises:
      ConfigError: if the model has no task, or the head is missing.
    """
    if task is None or head_of(task.effective_kind) not in {name.split("/")[0] for name in parts}:
        where = f"{source}: " if source else ""
        raise ConfigError(
            f"{where}the model has no task head; expected a run of xlj finetune, such as "
            "runs/finetune/NAME/seed-0, or a folder to which xlj convert exported such a run"
        )
    return task


class Labeller:
    """Labels examples with a fine-tuned model, in the same way as fine-tuning labels test sets.

    Args:
      pretrained: the model, on any mesh. All processes must label the same examples.
      source: the path of the model, for errors.

    Raises:
      ConfigError: if the model was not fine-tuned, or the head is missing.

    Attributes:
      task: the task of the head.
      kind: the kind of the task.
      truncated: the number of truncated texts so far, by the kind of text, such as `examples`.
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
        self.truncated: dict[str, int] = {}

    def stream(
        self, examples: Iterable[Example | None], progress: Advance = bool
    ) -> Iterator[Record | None]:
        """Yields the predictions for examples in order. Memory does not grow with their number.

        Args:
          examples: the examples. For None instead of an example, the prediction is None.
          progress: called with the number of newly labelled examples.

        Yields:
          JSON objects (`TaskKind.describe`).
        """
        rest = iter(examples)
        while chunk := list(itertools.islice(rest, _CHUNK)):
            predictions = iter(self._describe([e for e in chunk if e is not None]))
            yield from (None if example is None else next(predictions) for example in chunk)
            progress(len(chunk))

    def _describe(self, examples: list[Any]) -> list[Record]:
        if not examples:
            return []
        task, vocabulary = self.task, self._pretrained.vocabulary
        features = self.kind.rows(examples, vocabulary, task.labels, task)
        for what, count in features.cut.items():
            self.truncated[what] = self.truncated.get(what, 0) + count
        logits = self._predict(self._pretrained.params, features.tokens, "")
        return self.kind.describe(logits, features, examples, task.labels, task)
