"""The interface of a task's head: its logits, losses and predictions."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model, tasks
from xlj.models.dropout import Rngs
from xlj.models.encoder import Params


def _best(logits: jax.Array) -> jax.Array:
    return logits.argmax(-1).astype(jnp.int32)


def _known(labels: jax.Array) -> jax.Array:
    return (labels > 0).astype(jnp.float32)


class TaskHead(NamedTuple):
    """The head of a kind of task; shapes are those of `supervised.logits` and of labelled rows."""

    init: Callable[[jax.Array, Model, int], Params]
    """(random key, model, number of labels) -> parameters."""
    logits: Callable[[Params, Model, jax.Array, jax.Array, Rngs], jax.Array]
    """(parameters, model, hidden vectors [rows, length, hidden], tokens [rows, length], dropout
    rngs) -> logits."""
    losses: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    """(logits, labels) -> the loss of each prediction and whether it is correct, [rows, n] each."""
    predict: Callable[[jax.Array], jax.Array] = _best
    """logits -> the values from which predictions are decoded; by default the index of the highest
    logit, int32."""
    weights: Callable[[jax.Array], jax.Array] = _known
    """labels [rows, labels] -> 1 for predictions that count, float32 [rows, n]; by default those
    whose label is above 0."""
    by_token: bool = False
    """Whether logits are [rows, length, ...], for each token."""


def cross_entropy(
    choices: Callable[[jax.Array], jax.Array], first: int = 1
) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """Returns the `losses` function of a head that chooses among alternatives.

    Args:
      choices: logits -> logits [rows, n, choices].
      first: the label of the first choice; labels [rows, n] below it count as this one.
    """

    def losses(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits, right = choices(logits), jnp.maximum(labels - first, 0)
        log_probabilities = jax.nn.log_softmax(logits)
        of_right = jnp.take_along_axis(log_probabilities, right[..., None], axis=-1)[..., 0]
        return -of_right, logits.argmax(-1) == right

    return losses


@cache
def of_kind(kind: str) -> TaskHead:
    """Returns the head of a kind of task; raises the errors of `tasks.load`."""
    head: TaskHead = tasks.load(kind).head()
    return head


def head_of(kind: str) -> str:
    """Returns the name of a kind's head among the parameters."""
    return f"{tasks.load(kind).name}_head"
