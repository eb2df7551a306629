"""Runs the head of a task on many rows, and labels new text with a fine-tuned model."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from xlj.config import ConfigError, Model
from xlj.config.task import Task
from xlj.data.labelled import kind
from xlj.data.labelled.examples import Example
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.inference.pretrained import Pretrained
from xlj.inference.row_batches import buckets, in_flight
from xlj.io.json_file import Record
from xlj.io.progress import Advance
from xlj.objectives.supervised import loss as supervised
from xlj.objectives.supervised.head import head_of, of_kind
from xlj.sharding.devices import on_mesh
from xlj.sharding.meshes import QUICK, mesh_of
from xlj.sharding.trees import Params, replicated, shard


class Predictor:
    """Predicts the labels of rows, batch by batch on a mesh. All processes get all predictions.

    Args:
      kind: the kind of task.
      separators: the number of `</s>` that the head expects between the sentences of a pair. It is
        2 for heads that were trained with XLM-R's tokenizer outside xlj. Rows have one `</s>`; the
        predictor adds the second.
      whole: whether to return all logits. If False, calls return the values that
        `TaskHead.predict` computes from the logits, such as the index of the highest logit.
    """

    def __init__(
        self, kind: str, model: Model, mesh: Mesh, separators: int = 1, whole: bool = False
    ):
        self._mesh, self._by_token = mesh, of_kind(kind).by_token
        self._separators = separators
        run = on_mesh(mesh, partial(_run_head, kind, model, whole))
        self._predict = jax.jit(run, out_shardings=replicated(mesh), compiler_options=QUICK)

    def __call__(
        self,
        params: Params,
        tokens: np.ndarray,
        what: str,
        progress: Advance = bool,
    ) -> np.ndarray:
        """Computes the head's output for each row.

        Args:
          tokens: int32 [rows, length], at least one row.
          what: the text of the progress bar; empty for no bar.
          progress: called with the number of newly predicted rows.

        Returns:
          The outputs in order, [rows, ...], or [rows, length, ...] if the head has outputs for each
          token (`TaskHead.by_token`). A batch may be narrower than `length`. At the padding beyond
          its width, the outputs are -inf (float32) or 0 (int32).
        """
        outputs: np.ndarray | None = None
        hide_bar = None if what else True
        all_tokens, is_original = tokens, np.ones(tokens.shape, bool)
        if self._separators == 2:
            all_tokens, is_original = _double_separators(tokens)
        with tqdm(total=len(tokens), desc=what, unit="row", disable=hide_bar, leave=False) as bar:
            for members, width, result in in_flight(self._start_batches(params, all_tokens)):
                batch = np.asarray(result)[: len(members)]
                if outputs is None:
                    row_shape = batch.shape[1:]
                    if self._by_token:
                        row_shape = (*all_tokens.shape[1:], *batch.shape[2:])
                    fill = -np.inf if batch.dtype == np.float32 else 0
                    outputs = np.full((len(tokens), *row_shape), fill, batch.dtype)
                if self._by_token:
                    outputs[members, :width] = batch
                else:
                    outputs[members] = batch
                bar.update(len(members))
                progress(len(members))
        assert outputs is not None, "there are no rows to predict"
        if self._by_token and all_tokens is not tokens:
            return outputs[is_original].reshape(*tokens.shape, *outputs.shape[2:])
        return outputs

    def _start_batches(
        self, params: Params, tokens: np.ndarray
    ) -> Iterator[tuple[np.ndarray, int, jax.Array]]:
        """Starts batches; yields (indices of rows, width of the batch, output on devices)."""
        sizes = (tokens != PAD).sum(1)
        for members, width, rows in buckets(sizes, tokens.shape[1], self._mesh.size):
            batch = np.full((rows, width), PAD, np.int32)
            batch[: len(members)] = tokens[members, :width]
            yield members, width, self._predict(params, shard(batch, self._mesh))


def _double_separators(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replaces `<s> A </s> B </s>` by `<s> A </s> </s> B </s>`.

    Args:
      tokens: [rows, length].

    Returns:
      The new rows, [rows, new length], and a bool array of the same shape that marks the `length`
      original tokens of each row. The new length is `length` plus the largest number of tokens that
      were added to a row.
    """
    next_tokens = np.pad(tokens[:, 1:], ((0, 0), (0, 1)), constant_values=PAD)
    is_separator = (tokens == EOS) & (next_tokens != PAD) & (next_tokens != BOS)
    added = int(is_separator.sum(1).max(initial=0))
    columns_of_text = np.arange(tokens.shape[1]) + np.cumsum(is_separator, 1) - is_separator
    rows = np.arange(len(tokens))[:, None]
    doubled = np.full((len(tokens), tokens.shape[1] + added), PAD, tokens.dtype)
    is_original = np.zeros(doubled.shape, bool)
    doubled[rows, columns_of_text], is_original[rows, columns_of_text] = tokens, True
    row, column = np.nonzero(is_separator)
    doubled[row, columns_of_text[row, column] + 1] = EOS
    return doubled, is_original


def _run_head(kind: str, model: Model, whole: bool, params: Params, tokens: jax.Array) -> jax.Array:
    languages = jnp.zeros((len(tokens), 2), jnp.int32)
    logits = supervised.logits(kind, params, model, tokens, languages)
    return logits if whole else of_kind(kind).predict(logits)


_CHUNK = 1024  # how many examples are converted to rows at a time


def task_of(task: Task | None, names: Iterable[str], source: str) -> Task:
    """Returns the task of a model, and checks that the model has the head of the task.

    Args:
      names: the top-level names of the model's parameters, or full names such as
        `tagging_head/kernel`.
      source: the path of the model, for the error; empty if unknown.

    Raises:
      ConfigError: if the model has no task, or the head is missing.
    """
    if task is None or head_of(task.effective_kind) not in {name.split("/")[0] for name in names}:
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
        if not self.kind.labels_text:
            where = f"{source}: " if source else ""
            raise ConfigError(
                f"{where}the task {self.kind.name} does not label text; use xlj align, or `align` "
                "in Python"
            )
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
