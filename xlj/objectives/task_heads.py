"""The contract of a task's head: what it makes of hidden vectors, and its loss."""

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
    """Parameters, from a random key, the model and the number of labels."""
    logits: Callable[[Params, Model, jax.Array, jax.Array, Rngs], jax.Array]
    """Of the parameters, the model, hidden vectors [rows, length, hidden] and tokens [rows,
    length]; the random keys are for dropout."""
    losses: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    """(logits, labels) -> the loss of each prediction and whether it is right, [rows, n] each."""
    predict: Callable[[jax.Array], jax.Array] = _best
    """What is kept of logits to read predictions from: the index of the highest, int32."""
    weights: Callable[[jax.Array], jax.Array] = _known
    """1 for the predictions that there are, float32 [rows, n], from labels [rows, labels]: those
    above 0."""
    by_token: bool = False
    """Whether logits are [rows, length, ...], one for each token."""


def cross_entropy(
    choices: Callable[[jax.Array], jax.Array], first: int = 1
) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """The losses of a head whose predictions are choices.

    Args:
      choices: logits -> logits [rows, n, choices].
      first: the label [rows, n] of the first choice; labels below count as this one.
    """

    def losses(found: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
        found, right = choices(found), jnp.maximum(labels - first, 0)
        chances = jnp.take_along_axis(jax.nn.log_softmax(found), right[..., None], axis=-1)[..., 0]
        return -chances, found.argmax(-1) == right

    return losses


@cache
def of_kind(kind: str) -> TaskHead:
    """The head of a kind of task; raises as `tasks.load`."""
    head: TaskHead = tasks.load(kind).head()
    return head


def head_of(kind: str) -> str:
    """The name of a kind's head among the parameters."""
    return f"{tasks.load(kind).name}_head"
