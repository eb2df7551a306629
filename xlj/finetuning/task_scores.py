"""Predictions and scores of a fine-tuned model, and of no model at all."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from xlj.config import Model
from xlj.config.finetuning import Task
from xlj.data.labelled.examples import Example
from xlj.data.tokenizer.layout import PAD
from xlj.evaluation.language_report import average
from xlj.finetuning.task_data import KINDS, Predictions, Set, TaskData
from xlj.inference.row_batches import Advance, buckets, in_flight
from xlj.io import atomic
from xlj.models.encoder import Params
from xlj.objectives import supervised
from xlj.objectives.task_heads import HEADS
from xlj.sharding.devices import on_mesh
from xlj.sharding.trees import replicated, shard

SCORE = "eval/dev/score"
"""The metric that a checkpoint is chosen by."""

Scores = dict[str, dict[str, float]]
"""Percent by metric and language; the first metric is the task's."""


class Predictor:
    """Predicts the labels of rows, batch by batch on a mesh; every process gets all of them."""

    def __init__(self, kind: str, model: Model, mesh: Mesh):
        self._mesh = mesh
        predicted = on_mesh(mesh, partial(_predicted, kind, model))
        self._predict = jax.jit(predicted, out_shardings=replicated(mesh))

    def __call__(
        self,
        params: Params,
        tokens: np.ndarray,
        what: str,
        progress: Advance = bool,
    ) -> np.ndarray:
        """The prediction of the head for each row.

        Of classification, the class, int32 [rows]; of tagging, each token's tag, int32 [rows,
        length]; of question answering, logits float32 [rows, length, 2], minus infinity at padding.

        Args:
          tokens: int32 [rows, length], at least one row.
          what: is predicted, for the progress bar.
          progress: called with numbers of rows as they are predicted.
        """
        found: np.ndarray | None = None
        with tqdm(total=len(tokens), desc=what, unit="row", disable=None, leave=False) as bar:
            for members, width, result in in_flight(self._started(params, tokens)):
                made = np.asarray(result)[: len(members)]
                if found is None:
                    shape = (len(tokens), *tokens.shape[1:], *made.shape[2:])[: made.ndim]
                    found = np.full(shape, -np.inf if made.dtype == np.float32 else 0, made.dtype)
                if made.ndim == 1:
                    found[members] = made
                else:
                    found[members, :width] = made
                bar.update(len(members))
                progress(len(members))
        assert found is not None, "there are no rows to predict"
        return found

    def _started(
        self, params: Params, tokens: np.ndarray
    ) -> Iterator[tuple[np.ndarray, int, jax.Array]]:
        """Rows by index, their width, and what the devices will make of them."""
        sizes = (tokens != PAD).sum(1)
        for members, width, rows in buckets(sizes, tokens.shape[1], self._mesh.size):
            batch = np.full((rows, width), PAD, np.int32)
            batch[: len(members)] = tokens[members, :width]
            yield members, width, self._predict(params, shard(batch, self._mesh))


def _predicted(kind: str, model: Model, params: Params, tokens: jax.Array) -> jax.Array:
    languages = jnp.zeros((len(tokens), 2), jnp.int32)
    found = supervised.logits(kind, params, model, tokens, languages)
    return HEADS[kind].predict(found)


class Evaluator:
    """Predicts and scores sets of examples; labels are in the order of the head's outputs."""

    def __init__(self, task: Task, model: Model, labels: tuple[str, ...], mesh: Mesh):
        self._task, self._kind, self._labels = task, KINDS[task.kind], labels
        self._predict = Predictor(task.objective, model, mesh)

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
            if self._kind.labelled(examples):
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
    data, each language's own with `task.per_language`; of questions, none."""
    kind, found = KINDS[task.kind], Scores()
    majority = kind.majority
    if majority is None:
        return found

    @cache
    def learned(languages: tuple[str, ...]) -> Callable[[Sequence[Example]], Predictions]:
        return majority([e for name in languages for e in data.train[name].examples])

    tested = any(kind.labelled(entry.examples) for entry in data.test.values())
    for language, entry in (data.test if tested else data.dev).items():
        if kind.labelled(entry.examples):
            predict = learned((language,) if task.per_language else task.languages)
            _add(found, task, predict(entry.examples), entry.examples, language)
    return found


def save(task: Task, predictions: Mapping[str, Predictions], folder: Path, split: str) -> None:
    """Writes a file of predictions a language, `SPLIT-LANGUAGE`, in XTREME's form."""
    if jax.process_index() or not predictions:
        return
    folder.mkdir(exist_ok=True)
    kind = KINDS[task.kind]
    for language, predicted in predictions.items():
        file = folder / f"{split}-{language}.{kind.ENDING}"
        atomic.write(file, kind.to_text(predicted).encode())


def _add(
    found: Scores, task: Task, predicted: Predictions, examples: Sequence[Example], language: str
) -> None:
    shares = KINDS[task.kind].scores(predicted, examples, task.scored_by, language)
    for name, share in shares.items():
        found.setdefault(name, {})[language] = 100 * share
