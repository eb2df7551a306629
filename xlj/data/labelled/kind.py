"""The contract of a kind of fine-tuning task: all that is known of it, in one class."""

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
"""What a kind predicts of examples: one prediction each, in order, or by the example's identity."""


class HuggingFace(NamedTuple):
    """The class of transformers for a kind of task.

    Attributes:
      ending: of its name, such as ForTokenClassification.
      pipeline: what model hubs call the task.
      like: the head whose tensors an architecture names (`interop/architectures`); empty if it
        names this kind's own.
      problem_type: the `problem_type` of config.json; empty if it has none.
      remark: on the model card, of a model that was trained by xlj.
      usage: code on the model card that follows `model` and `tokenizer`; empty where a pipeline of
        transformers does it.
      always: the remark holds for a model that was not trained by xlj, too.
    """

    ending: str
    pipeline: str
    like: str = ""
    problem_type: str = ""
    remark: str = ""
    usage: str = ""
    always: bool = False


class TaskKind(abc.ABC):
    """A kind of task. docs/tasks.md writes one.

    Attributes:
      name: of its rows and its objective; its head is `NAME_head`.
      metrics: the names that `task.metric` may have; the first is the usual one.
      reads: keys of `task` that it reads, beside those that every kind reads.
      chosen_by: keys of `task` that choose it, and their values.
      example: the type of its examples.
      has_labels: whether its head has an output for each of `task.labels`.
      hugging_face: the class of transformers that its head goes to; None if there is none.
      ending: of the names of files of predictions.
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
        """Keys of `task` that choose it, and their values."""
        return {"kind": self.name}

    def check(self, task: Task) -> None:  # noqa: B027, most kinds refuse nothing
        """Raises a `ConfigError` if values of `task` contradict each other."""

    @abc.abstractmethod
    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[Example]:
        """The examples of a file; a `ConfigError` with file and line if it does not fit."""

    def distinct(self, examples: list[Example]) -> list[Example]:
        """The examples of one language, which may come from several sources."""
        return examples

    def check_examples(  # noqa: B027, likewise
        self, examples: Sequence[Any], labels: Sequence[str], task: Task
    ) -> None:
        """Raises a `ConfigError`, with its place, if one does not suit the metric."""

    @abc.abstractmethod
    def rows(
        self,
        examples: Sequence[Any],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """Examples as rows of `task.length` tokens, and their labels."""

    @abc.abstractmethod
    def head(self) -> Any:
        """The `objectives.task_heads.TaskHead`. Imports JAX, which nothing else here does."""

    @abc.abstractmethod
    def decode(
        self,
        outputs: np.ndarray,
        made: Any,
        examples: Sequence[Any],
        labels: Sequence[str],
        task: Task,
    ) -> Predictions:
        """The predictions, from what the head's `predict` keeps of the logits of each row."""

    def majority(self, training: Sequence[Any]) -> Callable[[Sequence[Any]], Predictions] | None:
        """A function that predicts without a model, learned from labelled examples: the baseline of
        results. None if there is none."""
        return None

    def is_labelled(self, examples: Sequence[Any]) -> bool:
        """Whether what is right is known of all examples, so that predictions can be scored."""
        return all(example.labels is not None for example in examples)

    @abc.abstractmethod
    def scores(
        self, predicted: Any, examples: Sequence[Any], metric: str, language: str
    ) -> dict[str, float]:
        """Shares by metric, that of the task first; they are reported times 100."""

    def to_text(self, predicted: Any) -> str:
        """A file of predictions, of XTREME's form where it has one: one a line."""
        return "".join(f"{one}\n" for one in predicted)

    def remark(self, examples: Sequence[Any]) -> str:
        """What a line of counts adds on the examples of a set, after a comma."""
        return ""

    # New text.

    @abc.abstractmethod
    def of_fields(self, fields: Sequence[str], place: str) -> Example:
        """The example of a line of text to be labelled, cut at its tabs; a `ConfigError` if not."""

    @abc.abstractmethod
    def of_record(self, record: Mapping[str, Any], place: str) -> Example:
        """Likewise of a JSON object."""

    @abc.abstractmethod
    def described(
        self,
        logits: np.ndarray,
        made: Any,
        examples: Sequence[Any],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """What is predicted of each example, as a JSON object, with probabilities or scores."""

    @abc.abstractmethod
    def to_fields(self, described: Record) -> list[str]:
        """The columns of a line for what is predicted of an example."""


def find(kind: str) -> TaskKind:
    """The kind of task of this name, or a user's own, `module:function`; raises as `tasks.load`."""
    found = tasks.load(kind)
    if not isinstance(found, TaskKind):
        raise ConfigError(f"task.kind={kind}: the function must return a TaskKind")
    return found


def text_of(record: Mapping[str, Any], keys: Sequence[str], place: str) -> str:
    """The text of the first of some keys that a JSON object has; a `ConfigError` if it has none."""
    for key in keys:
        if isinstance(record.get(key), str):
            return str(record[key])
    raise ConfigError(f"{place}: there is no text {' or '.join(keys)}")


def one_or_two(fields: Sequence[str], place: str) -> tuple[str, ...]:
    """The text of a line, or its two texts; a `ConfigError` if it has more."""
    if len(fields) > 2:
        raise ConfigError(
            f"{place}: {len(fields)} columns; expected a text, or two texts with a tab between"
        )
    return tuple(fields)


def texts_of(record: Mapping[str, Any], place: str) -> tuple[str, ...]:
    """The text of a JSON object, or its two texts, by their usual names."""
    first = text_of(record, FIRST, place)
    second = next((str(record[k]) for k in SECOND if isinstance(record.get(k), str)), None)
    return (first,) if second is None else (first, second)


FIRST = ("text", "sentence", "premise", "sentence1")
SECOND = ("text_pair", "hypothesis", "sentence2")
"""Keys of JSON objects that hold texts to be labelled."""


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The softmax over the last axis, float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    found: np.ndarray = shifted / shifted.sum(-1, keepdims=True)
    return found
