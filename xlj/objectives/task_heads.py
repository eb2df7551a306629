"""The interface of a task's head: its logits, losses and predictions."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model, tasks
from xlj.models.dropout import Rngs
from xlj.models.encoder import Params
from xlj.objectives.objective import Rows


def _best(logits: jax.Array) -> jax.Array:
    """Returns the index of the highest logit, int32 [...], from logits [..., labels]."""
    return logits.argmax(-1).astype(jnp.int32)


def _known(rows: Rows) -> jax.Array:
    """Returns 1 for labels, which count from 1, and 0 for "no label", float32 of their shape."""
    return (rows["labels"] > 0).astype(jnp.float32)


class TaskHead(NamedTuple):
    """The head of a kind of task, as functions.

    The shapes of logits are those that `supervised.logits` returns. Rows are the fields of a batch,
    with the labels that the kind of task stores (`Features.labels`).
    """

    init: Callable[[jax.Array, Model, int], Params]
    """(random key, model, number of labels) -> parameters."""
    logits: Callable[[Params, Model, jax.Array, jax.Array, Rngs], jax.Array]
    """(parameters, model, hidden vectors [rows, length, hidden], tokens [rows, length], a random
    key for each row or None) -> logits."""
    losses: Callable[[jax.Array, Rows], tuple[jax.Array, jax.Array]]
    """(logits, rows) -> (the loss of each prediction, whether each prediction is correct), of
    shape [rows, n] each."""
    predict: Callable[[jax.Array], jax.Array] = _best
    """Logits -> the values from which predictions are decoded. The default returns the index of the
    highest logit, int32."""
    weights: Callable[[Rows], jax.Array] = _known
    """Rows -> 1 for predictions that count, else 0, float32 [rows, n]. By default, predictions with
    a label above 0 in the field `labels` count."""
    by_token: bool = False
    """Whether there are logits for each token, [rows, length, ...]."""


def cross_entropy(
    choices: Callable[[jax.Array], jax.Array], first: int = 1
) -> Callable[[jax.Array, Rows], tuple[jax.Array, jax.Array]]:
    """Returns the function `losses` of a head that chooses among alternatives.

    Args:
      choices: a function that reshapes the head's logits to [rows, n, choices].
      first: the label of the first choice. Smaller labels are treated as the first choice, so
        `TaskHead.weights` must exclude them.
    """

    def losses(logits: jax.Array, rows: Rows) -> tuple[jax.Array, jax.Array]:
        logits, right = choices(logits), jnp.maximum(rows["labels"] - first, 0)
        log_probabilities = jax.nn.log_softmax(logits)
        of_right = jnp.take_along_axis(log_probabilities, right[..., None], axis=-1)[..., 0]
        return -of_right, logits.argmax(-1) == right

    return losses


@cache
def of_kind(kind: str) -> TaskHead:
    """Returns the head of a kind of task.

    Raises:
      ConfigError: if there is no such kind, or its code cannot be loaded (`tasks.load`).
    """
    head: TaskHead = tasks.load(kind).head()
    return head


def head_of(kind: str) -> str:
    """Returns the name that the head of a kind of task has in the parameters: `KIND_head`."""
    return f"{tasks.load(kind).name}_head"
