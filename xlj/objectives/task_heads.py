"""The contract of a task's head: what it makes of hidden vectors, and its loss."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model, tasks
from xlj.contracts.arrays import check
from xlj.models.dropout import Rngs
from xlj.models.encoder import Params


def best(logits: jax.Array) -> jax.Array:
    """The index of the highest logit, int32 [...]; of equals the first."""
    check("best", logits=("float [..., classes]", logits))
    return logits.argmax(-1).astype(jnp.int32)


def known(labels: jax.Array) -> jax.Array:
    """1 where a row has a label, float32 of the labels' shape: they count from 1."""
    check("known", labels=("int [rows, labels]", labels))
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
    predict: Callable[[jax.Array], jax.Array] = best
    """What is kept of logits to read predictions from."""
    weights: Callable[[jax.Array], jax.Array] = known
    """1 for the predictions that there are, float32 [rows, n], from labels [rows, labels]."""
    by_token: bool = False
    """Whether logits are [rows, length, ...], one for each token."""


def cross_entropy(
    choices: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]],
) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """The losses of a head whose predictions are choices.

    Args:
      choices: (logits, labels) -> logits [rows, n, choices] and the right choice [rows, n].
    """

    def losses(found: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
        found, right = choices(found, labels)
        chances = jnp.take_along_axis(jax.nn.log_softmax(found), right[..., None], axis=-1)[..., 0]
        return -chances, found.argmax(-1) == right

    return losses


def numbers(labels: jax.Array) -> jax.Array:
    """Of classes or tags, from 0; 0 too where there is none."""
    check("numbers", labels=("int [rows, labels]", labels))
    return jnp.maximum(labels - 1, 0)


@cache
def of_kind(kind: str) -> TaskHead:
    """The head of a kind of task; raises as `tasks.load`."""
    head: TaskHead = tasks.load(kind).head()
    return head


def head_of(kind: str) -> str:
    """The name of a kind's head among the parameters."""
    return f"{tasks.load(kind).name}_head"
