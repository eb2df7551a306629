"""The predictions of a fine-tuned model for rows, batch by batch, on the devices of its run."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from xlj.config import Model
from xlj.data.tokenizer.layout import PAD
from xlj.inference.row_batches import buckets, in_flight
from xlj.models.encoder import Params
from xlj.objectives import supervised
from xlj.training.partitioning import replicated, shard


class Predictor:
    """Predicts the labels of rows; every process gets all of them.

    Args:
      kind: one of `config.SUPERVISED`.
      mesh: where the parameters are.
    """

    def __init__(self, kind: str, model: Model, mesh: Mesh):
        self._mesh = mesh
        self._predict = jax.jit(partial(_predicted, kind, model), out_shardings=replicated(mesh))

    def __call__(
        self,
        params: Params,
        tokens: np.ndarray,
        what: str,
        progress: Callable[[int], Any] = bool,
    ) -> np.ndarray:
        """The prediction of the head for each row.

        Args:
          tokens: int32 [rows, length], at least one row.
          what: is predicted, for the progress bar.
          progress: called with numbers of rows as they are predicted.

        Returns:
          Of classification, the class, int32 [rows]; of tagging, each token's tag, int32 [rows,
          length]; of question answering, logits float32 [rows, length, 2], minus infinity at
          padding.
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
    return found if kind == "question_answering" else found.argmax(-1).astype(jnp.int32)
