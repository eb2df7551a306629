"""Defines the interface of a kind of fine-tuning task; a subclass implements each kind."""

import abc
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.config.task import Task, load
from xlj.data.labelled import records
from xlj.data.labelled.examples import Example
from xlj.data.labelled.features import Features
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io.json_file import Record
from xlj.io.quoting import quoted, shortened
from xlj.io.storage import AnyPath

Predictions = Sequence[Any] | Mapping[str, Any]
"""Predictions: one for each example, in order, or a mapping from the `identity` of examples."""


class HuggingFace(NamedTuple):
    """The transformers class for a kind of task.

    Attributes:
      ending: the end of the name of the class, such as ForTokenClassification.
      pipeline: the name of the task on model hubs.
      like: the name of another head that has the same tensors, such as `classification_head`. The
        tensor names of the other head are then used. Empty if a file of `families` lists the
        tensor names of this head.
      problem_type: the `problem_type` of config.json; empty if config.json has none.
      remark: text for the model card of a model that xlj trained.
      usage: code for the model card, in which the variables `model` and `tokenizer` exist; empty if
        a pipeline of transformers performs the task.
      always: whether the model card has the remark even if xlj did not train the model.
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
      name: name of the kind of rows and of the objective; the name of the head is `NAME_head`.
      metrics: the possible values of `task.metric`; the first value is the default.
      reads: keys of `task` that this kind reads, in addition to the keys that every kind reads.
      chosen_by: keys of `task` that select this kind, and their values.
      example: the type of the examples.
      has_labels: whether the head has an output for each of `task.labels`.
      hugging_face: the transformers class of the head; None if transformers has no such class.
      ending: the ending of files of predictions, without the dot.
      is_tuned: whether `tune` chooses options on dev.
      labels_text: whether `xlj predict` labels new text with models of this kind.
      token_axes: for each field of a row with axes that run over the tokens of the row: for each of
        its axes the number of tokens per value, or 0. With `tokens` among them, training cuts the
        padding that all rows of a batch share.
    """

    name: str
    metrics: tuple[str, ...]
    reads: tuple[str, ...] = ()
    example: type[Example]
    has_labels = True
    hugging_face: HuggingFace | None = None
    ending = "tsv"
    is_tuned = False
    labels_text = True
    token_axes: Mapping[str, tuple[int, ...]] = MappingProxyType({})

    @property
    def chosen_by(self) -> Mapping[str, str]:
        """Keys of `task` that select this kind, and their values."""
        return {"kind": self.name}

    def hugging_face_for(self, task: Task) -> HuggingFace | None:
        """Returns `hugging_face`, with the remark and the usage of a model of this task."""
        return self.hugging_face

    def check(self, task: Task) -> None:  # noqa: B027, most kinds check nothing
        """Checks a task; raises a `ConfigError` if its values contradict each other."""

    @abc.abstractmethod
    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[Example]:
        """Reads the examples of a file.

        Raises:
          ConfigError: if an example is invalid; the message names the file and the line.
        """

    def distinct(self, examples: list[Example]) -> list[Example]:
        """Makes the identities of the examples of one language unique.

        Most kinds have no identities and return the examples unchanged.
        """
        return examples

    def check_examples(  # noqa: B027, most kinds check nothing
        self, examples: Sequence[Any], labels: Sequence[str], task: Task
    ) -> None:
        """Checks that the metric can score the examples.

        Raises:
          ConfigError: if the metric cannot score an example; the message names its place.
        """

    @abc.abstractmethod
    def rows(
        self,
        examples: Sequence[Any],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """Converts examples to rows of `task.length` tokens, and to the labels of the rows."""

    @abc.abstractmethod
    def head(self) -> Any:
        """Returns the head, an `objectives.supervised.head.TaskHead`. Only this method imports
        JAX."""

    @abc.abstractmethod
    def decode(
        self,
        outputs: Any,
        rows: Any,
        examples: Sequence[Any],
        labels: Sequence[str],
        task: Task,
    ) -> Predictions:
        """Converts the outputs of the head to predictions.

        Args:
          outputs: what `predict` of the head returned, an array [rows, ...], or what `predictor`
            returned.
          rows: the `Features` that `rows` returned for the examples.
          examples: the examples.
          labels: the labels of the task.
          task: the task.
        """

    def predictor(
        self, pretrained: Any, task: Task
    ) -> Callable[[Sequence[Any], Callable[[int], object]], Sequence[Any]] | None:
        """Returns a function that computes the outputs for examples, in place of the head's logits.

        The function takes examples and a callback with the number of newly predicted examples. Most
        kinds return None: their outputs are what `predict` of the head returns for the rows.

        Args:
          pretrained: the model (`inference.pretrained.Pretrained`), on any mesh.
          task: the task.
        """
        return None

    def tune(
        self, outputs: Mapping[str, Any], examples: Mapping[str, Sequence[Any]], task: Task
    ) -> Task:
        """Returns the task with options that are chosen on dev, such as a threshold.

        Args:
          outputs: what `predictor` or the head returned for the dev sets, by language.
          examples: the labelled dev sets by language.
          task: the task.
        """
        return task

    def majority(self, training: Sequence[Any]) -> Callable[[Sequence[Any]], Predictions] | None:
        """Returns a function that predicts without a model, fitted on labelled training examples.

        Its predictions are the baseline in results. Returns None if the kind has no baseline.
        """
        return None

    def is_labelled(self, examples: Sequence[Any]) -> bool:
        """Whether all examples are labelled, so that predictions can be scored."""
        return all(example.labels is not None for example in examples)

    @abc.abstractmethod
    def scores(
        self, predicted: Any, examples: Sequence[Any], metric: str, language: str
    ) -> dict[str, float]:
        """Computes the scores of predictions, by name.

        The first score is the task's main score, which selects checkpoints. A score is a share from
        0 to 1, or a correlation from -1 to 1. Reports multiply it by 100.

        Args:
          predicted: the predictions.
          examples: the labelled examples.
          metric: the value of `task.metric`.
          language: code of the language.
        """

    def to_text(self, predicted: Any) -> str:
        """Returns the content of a file of predictions: one line for each prediction.

        Kinds of XTREME's tasks use XTREME's format.
        """
        return "".join(f"{one}\n" for one in predicted)

    def remark(self, examples: Sequence[Any]) -> str:
        """Returns further counts of a set of examples, which are printed after the set's size."""
        return ""

    # Methods for new text, which has no labels. Kinds that do not label text leave them out.

    def from_fields(self, fields: Sequence[str], place: str) -> Example:
        """Converts a line of new text, split at tabs, to an example.

        Raises:
          ConfigError: if the number of columns is wrong; the message begins with `place`.
        """
        raise NotImplementedError(f"{self.name} does not label new text")

    def from_record(self, record: Mapping[str, Any], place: str) -> Example:
        """Converts a JSON object to an example.

        Raises:
          ConfigError: if the object lacks a text; the message begins with `place`.
        """
        raise NotImplementedError(f"{self.name} does not label new text")

    def describe(
        self,
        logits: np.ndarray,
        rows: Any,
        examples: Sequence[Any],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """Describes the prediction of each example as a JSON object.

        The object contains the prediction, and probabilities or scores.

        Args:
          logits: the logits of the head, [rows, ...].
          rows: the `Features` that `rows` returned for the examples.
          examples: the examples.
          labels: the labels of the task.
          task: the task.
        """
        raise NotImplementedError(f"{self.name} does not label new text")

    def to_fields(self, description: Record) -> list[str]:
        """Converts an object of `describe` to the columns of a line of output."""
        raise NotImplementedError(f"{self.name} does not label new text")


def find(kind: str) -> TaskKind:
    """Returns a kind of task.

    Args:
      kind: a name in `config.task.KINDS` or `VARIANTS`; or `module:function`, a function of a
        user's module that returns a `TaskKind`.

    Raises:
      ConfigError: if the name is unknown, the module cannot be imported, or the function returns
        another type.
    """
    task_kind = load(kind)
    if not isinstance(task_kind, TaskKind):
        raise ConfigError(
            f"task.kind={kind}: the function must return a TaskKind, not a "
            f"{type(task_kind).__name__}"
        )
    return task_kind


def text_of(record: Mapping[str, Any], keys: Sequence[str], place: str) -> str:
    """Returns the text under the first of `keys` that has a text in a JSON object.

    Raises:
      ConfigError: if the object has no text under any of the keys.
    """
    for key in keys:
        if isinstance(record.get(key), str):
            return str(record[key])
    others = next((key for key in keys if record.get(key) is not None), None)
    problem = (
        f"the object needs a text under the key {' or '.join(keys)}; it has the keys "
        f"{shortened(', '.join(record))}"
        if others is None
        else f"{others} is {quoted(record[others])}, expected a text"
    )
    raise ConfigError(f"{place}: {problem}; in xlj finetune, task.columns names other keys")


def check_one_or_two(fields: Sequence[str], place: str) -> tuple[str, ...]:
    """Returns the columns of a line as texts, after a check that there are at most two.

    Raises:
      ConfigError: if there are more than two columns.
    """
    if len(fields) > 2:
        raise ConfigError(
            f"{place}: {len(fields)} columns; expected one text, or two texts with a tab between"
        )
    return tuple(fields)


def texts_of(record: Mapping[str, Any], place: str) -> tuple[str, ...]:
    """Returns the one or two texts of a JSON object.

    They are under a key of `records.FIRST_TEXT_KEYS`, and possibly under a key of
    `records.SECOND_TEXT_KEYS`.

    Raises:
      ConfigError: if the object has no first text.
    """
    first = text_of(record, records.FIRST_TEXT_KEYS, place)
    second = next(
        (str(record[k]) for k in records.SECOND_TEXT_KEYS if isinstance(record.get(k), str)), None
    )
    return (first,) if second is None else (first, second)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Computes the softmax of logits over the last axis; returns float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    result: np.ndarray = shifted / shifted.sum(-1, keepdims=True)
    return result
