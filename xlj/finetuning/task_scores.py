"""Predicts with a fine-tuned model and scores it, and scores a baseline without a model."""

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
from xlj.finetuning.task_data import ExampleSet, TaskData
from xlj.inference.predictor import Predictor
from xlj.inference.row_batches import Advance
from xlj.io import atomic
from xlj.models.encoder import Params

SCORE = "eval/dev/score"
"""The metric that chooses a checkpoint."""

Scores = dict[str, dict[str, float]]
"""Percentages by metric and language; the first metric is the task's."""


class Evaluator:
    """Predicts and scores sets of examples.

    Args:
      labels: labels in the order of the head's outputs.
      separators: as in `Predictor`.
    """

    def __init__(
        self, task: Task, model: Model, labels: tuple[str, ...], mesh: Mesh, separators: int = 1
    ):
        self._task, self._kind, self._labels = task, kind.find(task.effective_kind), labels
        self._predict = Predictor(task.effective_kind, model, mesh, separators)

    def scores(
        self,
        params: Params,
        sets: Mapping[str, ExampleSet],
        split: str,
        progress: Advance = bool,
    ) -> tuple[dict[str, Predictions], Scores]:
        """Returns predictions by language, and scores for languages with labels."""
        predictions: dict[str, Predictions] = {}
        scores: Scores = {}
        for language, entry in sets.items():
            rows, examples = entry.rows, entry.examples
            outputs = self._predict(params, rows.tokens, f"{split} {language}", progress)
            predicted = self._kind.decode(outputs, rows, examples, self._labels, self._task)
            predictions[language] = predicted
            if self._kind.is_labelled(examples):
                _add(scores, self._task, predicted, examples, language)
        return predictions, scores


def line_of(scores: Scores, task: Task, trained: Iterable[str]) -> dict[str, float]:
    """Returns a line of metrics: each language, their means, and `SCORE`."""
    line: dict[str, float] = {}
    for name, by_language in scores.items():
        line |= {f"eval/dev/{language}/{name}": value for language, value in by_language.items()}
        line[f"eval/dev/{name}"] = average(by_language)
    return line | {SCORE: on_dev(scores, task, trained)}


def on_dev(scores: Scores, task: Task, trained: Iterable[str]) -> float:
    """Returns the score that chooses checkpoints and seeds.

    It is the task's metric, averaged over all languages of dev, or over the trained languages
    (`task.select`).
    """
    first = next(iter(scores.values()))
    chosen = set(first if task.select != "trained" else trained)
    return average({language: value for language, value in first.items() if language in chosen})


def baseline(data: TaskData, task: Task) -> Scores:
    """Scores the most frequent labels of the training data.

    They are scored on test, or on dev if no test set has labels. With `task.per_language`, each
    language uses its own training data. Empty for questions, or without training data.
    """
    scores = Scores()
    if not data.train:
        return scores

    @cache
    def fit_majority(
        languages: tuple[str, ...],
    ) -> Callable[[Sequence[Example]], Predictions] | None:
        return data.kind.majority([e for name in languages for e in data.train[name].examples])

    tested = any(data.kind.is_labelled(entry.examples) for entry in data.test.values())
    for language, entry in (data.test if tested else data.dev).items():
        if data.kind.is_labelled(entry.examples):
            predict = fit_majority((language,) if task.per_language else task.languages)
            if predict is not None:
                _add(scores, task, predict(entry.examples), entry.examples, language)
    return scores


def save(task: Task, predictions: Mapping[str, Predictions], folder: Path, split: str) -> None:
    """Writes the predictions of each language to `SPLIT-LANGUAGE.ENDING`, in XTREME's format."""
    if jax.process_index() or not predictions:
        return
    folder.mkdir(exist_ok=True)
    of_task = kind.find(task.effective_kind)
    for language, predicted in predictions.items():
        file = folder / f"{split}-{language}.{of_task.ending}"
        atomic.write(file, of_task.to_text(predicted).encode())


def _add(
    totals: Scores, task: Task, predicted: Predictions, examples: Sequence[Example], language: str
) -> None:
    shares = kind.find(task.effective_kind).scores(predicted, examples, task.scored_by, language)
    for name, share in shares.items():
        totals.setdefault(name, {})[language] = 100 * share
