"""Predictions and scores of a fine-tuned model, and of no model at all."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import jax
from jax.sharding import Mesh

from xlj.config import Model
from xlj.config.finetuning import Task
from xlj.data.labelled import kind
from xlj.data.labelled.examples import Example
from xlj.data.labelled.kind import Predictions
from xlj.evaluation.language_report import average
from xlj.finetuning.task_data import Set, TaskData
from xlj.inference.predictor import Predictor
from xlj.inference.row_batches import Advance
from xlj.io import atomic
from xlj.models.encoder import Params

SCORE = "eval/dev/score"
"""The metric that a checkpoint is chosen by."""

Scores = dict[str, dict[str, float]]
"""Percent by metric and language; the first metric is the task's."""


class Evaluator:
    """Predicts and scores sets of examples.

    Args:
      labels: in the order of the head's outputs.
      separators: as of `Predictor`.
    """

    def __init__(
        self, task: Task, model: Model, labels: tuple[str, ...], mesh: Mesh, separators: int = 1
    ):
        self._task, self._kind, self._labels = task, kind.find(task.effective_kind), labels
        self._predict = Predictor(task.effective_kind, model, mesh, separators)

    def scores(
        self,
        params: Params,
        sets: Mapping[str, Set],
        split: str,
        progress: Advance = bool,
    ) -> tuple[dict[str, Predictions], Scores]:
        """Predictions by language, and their scores where labels are known."""
        predictions: dict[str, Predictions] = {}
        found: Scores = {}
        for language, entry in sets.items():
            made, examples = entry.made, entry.examples
            outputs = self._predict(params, made.tokens, f"{split} {language}", progress)
            predicted = self._kind.decode(outputs, made, examples, self._labels, self._task)
            predictions[language] = predicted
            if self._kind.is_labelled(examples):
                _add(found, self._task, predicted, examples, language)
        return predictions, found


def line_of(scores: Scores, task: Task, trained: Iterable[str]) -> dict[str, float]:
    """A line of metrics: of each language, their means, and what a checkpoint is chosen by."""
    line: dict[str, float] = {}
    for name, by_language in scores.items():
        line |= {f"eval/dev/{language}/{name}": value for language, value in by_language.items()}
        line[f"eval/dev/{name}"] = average(by_language)
    return line | {SCORE: on_dev(scores, task, trained)}


def on_dev(scores: Scores, task: Task, trained: Iterable[str]) -> float:
    """The score that a checkpoint is chosen by, and a seed: the task's metric, averaged
    over all languages of dev, or over those trained on (`task.select`)."""
    first = next(iter(scores.values()))
    chosen = set(first if task.select != "trained" else trained)
    return average({language: value for language, value in first.items() if language in chosen})


def baseline(data: TaskData, task: Task) -> Scores:
    """Test scores (dev's where no test set has labels) of the most frequent labels of the training
    data, each language's own with `task.per_language`; of questions, or without such data, none."""
    found = Scores()
    if not data.train:
        return found

    @cache
    def learned(
        languages: tuple[str, ...],
    ) -> Callable[[Sequence[Example]], Predictions] | None:
        return data.kind.majority([e for name in languages for e in data.train[name].examples])

    tested = any(data.kind.is_labelled(entry.examples) for entry in data.test.values())
    for language, entry in (data.test if tested else data.dev).items():
        if data.kind.is_labelled(entry.examples):
            predict = learned((language,) if task.per_language else task.languages)
            if predict is not None:
                _add(found, task, predict(entry.examples), entry.examples, language)
    return found


def save(task: Task, predictions: Mapping[str, Predictions], folder: Path, split: str) -> None:
    """Writes a file of predictions a language, `SPLIT-LANGUAGE`, in XTREME's form."""
    if jax.process_index() or not predictions:
        return
    folder.mkdir(exist_ok=True)
    of_task = kind.find(task.effective_kind)
    for language, predicted in predictions.items():
        file = folder / f"{split}-{language}.{of_task.ending}"
        atomic.write(file, of_task.to_text(predicted).encode())


def _add(
    found: Scores, task: Task, predicted: Predictions, examples: Sequence[Example], language: str
) -> None:
    shares = kind.find(task.effective_kind).scores(predicted, examples, task.scored_by, language)
    for name, share in shares.items():
        found.setdefault(name, {})[language] = 100 * share
