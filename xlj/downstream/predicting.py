"""What a fine-tuned model says of rows, batch by batch, on the devices of its run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from xlj.config import Model
from xlj.data.layout import PAD
from xlj.models.encoder import Params
from xlj.objectives import supervised
from xlj.training.partitioning import everywhere, spread

_BATCH_TOKENS = 8192


class Predictor:
    """Predicts the labels of rows; every process gets all of them.

    Args:
      kind: one of `config.LABELLED`.
      model: of the parameters.
      mesh: where the parameters are.
    """

    def __init__(self, kind: str, model: Model, mesh: Mesh):
        self._mesh = mesh
        self._predict = jax.jit(partial(_predicted, kind, model), out_shardings=everywhere(mesh))

    def __call__(self, params: Params, tokens: np.ndarray, what: str) -> np.ndarray:
        """What the head says of each row.

        Args:
          tokens: int32 [rows, length], at least one row.
          what: is predicted, for the progress bar.

        Returns:
          Of classification, the class, int32 [rows]; of tagging, each token's tag, int32 [rows,
          length]; of question answering, logits float32 [rows, length, 2], minus infinity at
          padding.
        """
        found: np.ndarray | None = None
        with tqdm(total=len(tokens), desc=what, unit="row", disable=None, leave=False) as bar:
            for members, width, rows in self._batches(tokens):
                batch = np.full((rows, width), PAD, np.int32)
                batch[: len(members)] = tokens[members, :width]
                made = np.asarray(self._predict(params, spread(batch, self._mesh)))
                made = made[: len(members)]
                if found is None:
                    shape = (len(tokens), *tokens.shape[1:], *made.shape[2:])[: made.ndim]
                    found = np.full(shape, -np.inf if made.dtype == np.float32 else 0, made.dtype)
                if made.ndim == 1:
                    found[members] = made
                else:
                    found[members, :width] = made
                bar.update(len(members))
        assert found is not None, "there are no rows to predict"
        return found

    def _batches(self, tokens: np.ndarray) -> Iterator[tuple[np.ndarray, int, int]]:
        """Rows of similar length, by index, the width that holds them, and the rows of a batch: few
        shapes in all."""
        length = tokens.shape[1]
        sizes = np.maximum((tokens != PAD).sum(1), 16)
        widths = np.minimum(2 ** np.ceil(np.log2(sizes)).astype(int), length)
        for width in np.unique(widths):
            members = np.flatnonzero(widths == width)
            rows = -(-_BATCH_TOKENS // (int(width) * self._mesh.size)) * self._mesh.size
            for start in range(0, len(members), rows):
                yield members[start : start + rows], int(width), rows


def _predicted(kind: str, model: Model, params: Params, tokens: jax.Array) -> jax.Array:
    languages = jnp.zeros((len(tokens), 2), jnp.int32)
    found = supervised.logits(kind, params, model, tokens, languages)
    return found if kind == "question_answering" else found.argmax(-1).astype(jnp.int32)
