"""Defines the interface of a kind of fine-tuning task, which one class implements."""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlj.config import ConfigError, tasks
from xlj.config.finetuning import Task
from xlj.data.labelled.examples import Example
from xlj.data.labelled.features import Features
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath

Predictions = Sequence[Any] | Mapping[str, Any]
"""Predictions of a kind: one per example, in order, or by the identity of the example."""


class HuggingFace(NamedTuple):
    """The transformers class for a kind of task.

    Attributes:
      ending: the end of its name, such as ForTokenClassification.
      pipeline: the name of the task on model hubs.
      like: the head whose tensor names an architecture defines (`interop/architectures`); empty if
        it defines those of this kind.
      problem_type: the `problem_type` of config.json; empty for none.
      remark: text for the model card of a model that was trained by xlj.
      usage: code for the model card, after `model` and `tokenizer`; empty if a pipeline of
        transformers does the task.
      always: whether the remark also applies to a model that was not trained by xlj.
    """

    ending: str
    pipeline: str
    like: str = ""
    problem_type: str = ""
    remark: str = ""
    usage: str = ""
    always: bool = False


class TaskKind(abc.ABC):
    """A kind of task. docs/tasks.md shows an example.

    Attributes:
      name: name of its rows and its objective; its head is `NAME_head`.
      metrics: the possible values of `task.metric`; the first is the usual one.
      reads: further keys of `task` that it reads, in addition to those that every kind reads.
      chosen_by: keys of `task` that select it, and their values.
      example: the type of its examples.
      has_labels: whether its head has an output for each of `task.labels`.
      hugging_face: the transformers class of its head; None if there is none.
      ending: the file ending of predictions.
    """

    name: str
    metrics: tuple[str, ...]
    reads: tuple[str, ...] = ()
    example: type[Example]
    has_labels = True
    hugging_face: HuggingFace | None = None
    ending = "tsv"

    @property
    def chosen_by(self) -> Mapping[str, str]:
        """Keys of `task` that select this kind, and their values."""
        return {"kind": self.name}

    def check(self, task: Task) -> None:  # noqa: B027, most kinds check nothing
        """Raises a `ConfigError` if values of `task` contradict each other."""

    @abc.abstractmethod
    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[Example]:
        """Reads the examples of a file; raises a `ConfigError` with file and line."""

    def distinct(self, examples: list[Example]) -> list[Example]:
        """Makes the examples of one language distinct; most kinds return them as they are."""
        return examples

    def check_examples(  # noqa: B027, as `check`
        self, examples: Sequence[Any], labels: Sequence[str], task: Task
    ) -> None:
        """Raises a `ConfigError`, with its place, if an example does not fit the metric."""

    @abc.abstractmethod
    def rows(
        self,
        examples: Sequence[Any],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """Converts examples to rows of `task.length` tokens, and their labels."""

    @abc.abstractmethod
    def head(self) -> Any:
        """Returns the `objectives.task_heads.TaskHead`. Only this method imports JAX."""

    @abc.abstractmethod
    def decode(
        self,
        outputs: np.ndarray,
        rows: Any,
        examples: Sequence[Any],
        labels: Sequence[str],
        task: Task,
    ) -> Predictions:
        """Returns the predictions, from what the head's `predict` returned for each row."""

    def majority(self, training: Sequence[Any]) -> Callable[[Sequence[Any]], Predictions] | None:
        """Returns a function that predicts without a model, fitted on labelled examples.

        It is the baseline in results. None if there is none.
        """
        return None

    def is_labelled(self, examples: Sequence[Any]) -> bool:
        """Whether the correct answers of all examples are known, so that they can be scored."""
        return all(example.labels is not None for example in examples)

    @abc.abstractmethod
    def scores(
        self, predicted: Any, examples: Sequence[Any], metric: str, language: str
    ) -> dict[str, float]:
        """Computes shares by metric, the task's metric first; they are reported times 100."""

    def to_text(self, predicted: Any) -> str:
        """Formats a file of predictions, one per line, in XTREME's format if it has one."""
        return "".join(f"{one}\n" for one in predicted)

    def remark(self, examples: Sequence[Any]) -> str:
        """Returns further counts of a set of examples, to print after its size."""
        return ""

    # New text.

    @abc.abstractmethod
    def from_fields(self, fields: Sequence[str], place: str) -> Example:
        """Converts a line of new text, split at tabs, to an example, or raises a `ConfigError`."""

    @abc.abstractmethod
    def from_record(self, record: Mapping[str, Any], place: str) -> Example:
        """Converts a JSON object to an example, or raises a `ConfigError`."""

    @abc.abstractmethod
    def describe(
        self,
        logits: np.ndarray,
        rows: Any,
        examples: Sequence[Any],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """Returns a JSON object for each example: its prediction with probabilities or scores."""

    @abc.abstractmethod
    def to_fields(self, description: Record) -> list[str]:
        """Formats the description of an example as the columns of a line."""


def find(kind: str) -> TaskKind:
    """Returns the kind of this name, or of a user's `module:function`; raises as `tasks.load`."""
    task_kind = tasks.load(kind)
    if not isinstance(task_kind, TaskKind):
        raise ConfigError(f"task.kind={kind}: the function must return a TaskKind")
    return task_kind


def text_of(record: Mapping[str, Any], keys: Sequence[str], place: str) -> str:
    """Returns the text under the first of some keys that a JSON object has.

    Raises:
      ConfigError: if it has none of them.
    """
    for key in keys:
        if isinstance(record.get(key), str):
            return str(record[key])
    raise ConfigError(f"{place}: no text under {' or '.join(keys)}")


def one_or_two(fields: Sequence[str], place: str) -> tuple[str, ...]:
    """Returns the one or two texts of a line; raises a `ConfigError` if it has more."""
    if len(fields) > 2:
        raise ConfigError(
            f"{place}: {len(fields)} columns; expected one text, or two texts with a tab between"
        )
    return tuple(fields)


def texts_of(record: Mapping[str, Any], place: str) -> tuple[str, ...]:
    """Returns the one or two texts of a JSON object, under their usual names."""
    first = text_of(record, FIRST, place)
    second = next((str(record[k]) for k in SECOND if isinstance(record.get(k), str)), None)
    return (first,) if second is None else (first, second)


FIRST = ("text", "sentence", "premise", "sentence1")
SECOND = ("text_pair", "hypothesis", "sentence2")
"""Keys of JSON objects with new text."""


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Computes the softmax over the last axis, float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    result: np.ndarray = shifted / shifted.sum(-1, keepdims=True)
    return result
