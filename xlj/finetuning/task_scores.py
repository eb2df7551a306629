"""Computes and scores the predictions of a fine-tuned model, and of a baseline without a model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from xlj.config import Model
from xlj.config.task import Task
from xlj.data.labelled import kind
from xlj.data.labelled.examples import Example
from xlj.data.labelled.kind import Predictions
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.language_report import average
from xlj.finetuning.task_data import ExampleSet, TaskData
from xlj.inference.predictor import Predictor
from xlj.inference.pretrained import Pretrained
from xlj.io import atomic
from xlj.io.progress import Advance
from xlj.sharding.trees import Params

SCORE = "eval/dev/score"
"""The name of the metric by which checkpoints are chosen."""

Scores = dict[str, dict[str, float]]
"""Scores in percent, by metric and then by language. The first metric is the task's metric."""


class Evaluator:
    """Predicts and scores sets of examples.

    Args:
      labels: the labels, in the order of the head's outputs.
      vocabulary: the vocabulary of the rows.
      separators: the number of `</s>` that the head expects between the sentences of a pair.

    Attributes:
      task: the task, with the options that were chosen on the latest dev sets (`TaskKind.tune`).
    """

    def __init__(
        self,
        task: Task,
        model: Model,
        labels: tuple[str, ...],
        mesh: Mesh,
        vocabulary: Vocabulary,
        separators: int = 1,
    ):
        self.task, self._kind, self._labels = task, kind.find(task.effective_kind), labels
        self._given, self._model, self._vocabulary = task, model, vocabulary
        self._predict = Predictor(task.effective_kind, model, mesh, separators)

    def scores(
        self,
        params: Params,
        sets: Mapping[str, ExampleSet],
        split: str,
        progress: Advance = bool,
    ) -> tuple[dict[str, Predictions], Scores]:
        """Predicts and scores the examples of a split.

        Returns:
          (predictions by language, scores of the languages with labels).

        Args:
          sets: the examples by language.
          split: the name of the split, for the progress bar.
          progress: called with the number of newly predicted rows.
        """
        predict = self._predictor(params)
        outputs: dict[str, Any] = {}
        if self._kind.is_tuned and split == "dev" and sets:
            outputs = {name: predict(each, name, split, progress) for name, each in sets.items()}
            examples_of = {name: each.examples for name, each in sets.items()}
            self.task = self._kind.tune(outputs, examples_of, self._given)
        predictions: dict[str, Predictions] = {}
        scores: Scores = {}
        for language, example_set in sets.items():
            rows, examples = example_set.rows, example_set.examples
            output = outputs.pop(language, None)
            if output is None:
                output = predict(example_set, language, split, progress)
            predicted = self._kind.decode(output, rows, examples, self._labels, self.task)
            predictions[language] = predicted
            if self._kind.is_labelled(examples):
                _add_scores(scores, self.task, predicted, examples, language)
        return predictions, scores

    def _predictor(self, params: Params) -> Callable[[ExampleSet, str, str, Advance], Any]:
        """Returns a function (set, language, split, progress) -> outputs for the examples."""
        pretrained = Pretrained(params, self._model, self._vocabulary)
        of_examples = self._kind.predictor(pretrained, self._given)

        def predict(each: ExampleSet, language: str, split: str, progress: Advance) -> Any:
            if of_examples is not None:
                return of_examples(each.examples, progress)
            return self._predict(params, each.rows.tokens, f"{split} {language}", progress)

        return predict


def metrics_of(scores: Scores, task: Task, trained: Iterable[str]) -> dict[str, float]:
    """Returns the metrics to log: the score of each language, the means, and `SCORE`.

    Args:
      scores: the scores on dev.
      trained: the languages of the training data.
    """
    line: dict[str, float] = {}
    for name, by_language in scores.items():
        line |= {f"eval/dev/{language}/{name}": value for language, value in by_language.items()}
        line[f"eval/dev/{name}"] = average(by_language)
    return line | {SCORE: selection_score(scores, task, trained)}


def selection_score(scores: Scores, task: Task, trained: Iterable[str]) -> float:
    """Returns the score by which checkpoints and seeds are chosen.

    It is the mean of the task's metric over all languages of dev. With `task.select=trained`, it is
    the mean over the languages of the training data only.

    Args:
      scores: the scores on dev.
      trained: the languages of the training data.
    """
    first = next(iter(scores.values()))
    chosen = set(first if task.select != "trained" else trained)
    return average({language: value for language, value in first.items() if language in chosen})


def baseline(data: TaskData, task: Task) -> Scores:
    """Scores a baseline that predicts the most frequent labels of the training data.

    It is scored on test, or on dev if no test set has labels. With `task.per_language`, the
    baseline of a language uses the training data of this language only.

    Returns:
      The scores; empty without training data, or if the kind of task has no baseline.
    """
    scores = Scores()
    if not data.train:
        return scores

    @cache
    def fit_majority(
        languages: tuple[str, ...],
    ) -> Callable[[Sequence[Example]], Predictions] | None:
        return data.kind.majority([e for name in languages for e in data.train[name].examples])

    has_test_labels = any(
        data.kind.is_labelled(example_set.examples) for example_set in data.test.values()
    )
    for language, example_set in (data.test if has_test_labels else data.dev).items():
        if data.kind.is_labelled(example_set.examples):
            predict = fit_majority((language,) if task.per_language else task.languages)
            if predict is not None:
                _add_scores(
                    scores, task, predict(example_set.examples), example_set.examples, language
                )
    return scores


def save(task: Task, predictions: Mapping[str, Predictions], folder: Path, split: str) -> None:
    """Writes the predictions of each language to `folder/SPLIT-LANGUAGE.ENDING`.

    The format is that of `TaskKind.to_text`. Only process 0 writes.
    """
    if jax.process_index() or not predictions:
        return
    folder.mkdir(exist_ok=True)
    task_kind = kind.find(task.effective_kind)
    for language, predicted in predictions.items():
        file = folder / f"{split}-{language}.{task_kind.ending}"
        atomic.write(file, task_kind.to_text(predicted).encode())


def _add_scores(
    totals: Scores, task: Task, predicted: Predictions, examples: Sequence[Example], language: str
) -> None:
    shares = kind.find(task.effective_kind).scores(predicted, examples, task.scored_by, language)
    for name, share in shares.items():
        totals.setdefault(name, {})[language] = 100 * share
