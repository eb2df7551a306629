"""Runs the head of a task on many rows."""

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from xlj.config import Model
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.inference.row_batches import Advance, buckets, in_flight
from xlj.objectives.supervised import loss as supervised
from xlj.objectives.supervised.head import of_kind
from xlj.sharding.devices import on_mesh
from xlj.sharding.meshes import QUICK
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
    places = np.arange(tokens.shape[1]) + np.cumsum(is_separator, 1) - is_separator
    rows = np.arange(len(tokens))[:, None]
    doubled = np.full((len(tokens), tokens.shape[1] + added), PAD, tokens.dtype)
    is_original = np.zeros(doubled.shape, bool)
    doubled[rows, places], is_original[rows, places] = tokens, True
    row, column = np.nonzero(is_separator)
    doubled[row, places[row, column] + 1] = EOS
    return doubled, is_original


def _run_head(kind: str, model: Model, whole: bool, params: Params, tokens: jax.Array) -> jax.Array:
    languages = jnp.zeros((len(tokens), 2), jnp.int32)
    logits = supervised.logits(kind, params, model, tokens, languages)
    return logits if whole else of_kind(kind).predict(logits)
