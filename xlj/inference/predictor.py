"""Predictions of a task's head for many rows."""

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
from xlj.models.encoder import Params
from xlj.objectives import supervised, task_heads
from xlj.sharding.devices import on_mesh
from xlj.sharding.meshes import QUICK
from xlj.sharding.trees import replicated, shard


class Predictor:
    """Predicts the labels of rows, batch by batch on a mesh; every process gets all of them.

    Args:
      kind: of task.
      separators: how many `</s>` the head expects between the sentences of a pair: 2 if it was
        trained elsewhere on XLM-R's pairs. Rows have one, and get the other here.
      whole: return all logits, not only what the head keeps of them to read predictions from.
    """

    def __init__(
        self, kind: str, model: Model, mesh: Mesh, separators: int = 1, whole: bool = False
    ):
        self._mesh, self._by_token = mesh, task_heads.of_kind(kind).by_token
        self._separators = separators
        predicted = on_mesh(mesh, partial(_predicted, kind, model, whole))
        self._predict = jax.jit(predicted, out_shardings=replicated(mesh), compiler_options=QUICK)

    def __call__(
        self,
        params: Params,
        tokens: np.ndarray,
        what: str,
        progress: Advance = bool,
    ) -> np.ndarray:
        """What the head says of each row: [rows, ...], or [rows, length, ...] if it is `by_token`,
        where padding has minus infinity for logits, 0 for labels.

        Args:
          tokens: int32 [rows, length], at least one row.
          what: is predicted, for the progress bar; empty for none.
          progress: called with numbers of rows as they are predicted.
        """
        found: np.ndarray | None = None
        hidden = None if what else True
        framed, own = tokens, np.ones(tokens.shape, bool)
        if self._separators == 2:
            framed, own = _doubled(tokens)
        with tqdm(total=len(tokens), desc=what, unit="row", disable=hidden, leave=False) as bar:
            for members, width, result in in_flight(self._started(params, framed)):
                made = np.asarray(result)[: len(members)]
                if found is None:
                    of_row = made.shape[1:]
                    if self._by_token:
                        of_row = (*framed.shape[1:], *made.shape[2:])
                    fill = -np.inf if made.dtype == np.float32 else 0
                    found = np.full((len(tokens), *of_row), fill, made.dtype)
                if self._by_token:
                    found[members, :width] = made
                else:
                    found[members] = made
                bar.update(len(members))
                progress(len(members))
        assert found is not None, "there are no rows to predict"
        if self._by_token and framed is not tokens:
            return found[own].reshape(*tokens.shape, *found.shape[2:])
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


def _doubled(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows [rows, length] with `<s> A </s> </s> B </s>` for `<s> A </s> B </s>`, each longer by as
    many tokens as any needs; and which tokens were there before, bool, `length` a row."""
    after = np.pad(tokens[:, 1:], ((0, 0), (0, 1)), constant_values=PAD)
    inner = (tokens == EOS) & (after != PAD) & (after != BOS)
    more = int(inner.sum(1).max(initial=0))
    places = np.arange(tokens.shape[1]) + np.cumsum(inner, 1) - inner
    rows = np.arange(len(tokens))[:, None]
    made = np.full((len(tokens), tokens.shape[1] + more), PAD, tokens.dtype)
    own = np.zeros(made.shape, bool)
    made[rows, places], own[rows, places] = tokens, True
    row, column = np.nonzero(inner)
    made[row, places[row, column] + 1] = EOS
    return made, own


def _predicted(
    kind: str, model: Model, whole: bool, params: Params, tokens: jax.Array
) -> jax.Array:
    languages = jnp.zeros((len(tokens), 2), jnp.int32)
    found = supervised.logits(kind, params, model, tokens, languages)
    return found if whole else task_heads.of_kind(kind).predict(found)
