"""What each kind of fine-tuning task makes of hidden vectors: its head, what is predicted, and what
that is compared with."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.data.tokenizer.layout import PAD
from xlj.models import heads
from xlj.models.dropout import Rngs
from xlj.models.encoder import Params
from xlj.objectives.bitext import averages


class TaskHead(NamedTuple):
    """A kind of task; shapes are those of `supervised.logits` and of labelled rows."""

    init: Callable[[jax.Array, Model, int], Params]
    """Parameters, from a random key, the model and the number of labels."""
    logits: Callable[[Params, Model, jax.Array, jax.Array, Rngs], jax.Array]
    """Of the parameters, the model, hidden vectors [rows, length, hidden] and tokens [rows,
    length]; the random keys are for dropout."""
    predict: Callable[[jax.Array], jax.Array]
    """What is kept of logits to read predictions from."""
    weights: Callable[[jax.Array], jax.Array]
    """1 where labels [rows, labels of a row] have something to predict, float32 of their shape."""
    choices: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    """Logits [rows, labels of a row, choices] and the right choice [rows, labels of a row], from
    logits and labels."""


def _best(found: jax.Array) -> jax.Array:
    return found.argmax(-1).astype(jnp.int32)


def _known(labels: jax.Array) -> jax.Array:
    return (labels > 0).astype(jnp.float32)


def _numbers(labels: jax.Array) -> jax.Array:
    """Of classes or tags, from 0; 0 too where there is none."""
    return jnp.maximum(labels - 1, 0)


def _pair_logits(
    head: Params, model: Model, hidden: jax.Array, tokens: jax.Array, rngs: Rngs
) -> jax.Array:
    first, second = averages(hidden, tokens, 2).swapaxes(0, 1)
    return heads.classify(head, model, heads.pair_features(first, second), rngs)


def _end_logits(
    head: Params, model: Model, hidden: jax.Array, tokens: jax.Array, rngs: Rngs
) -> jax.Array:
    found = heads.classify_tokens(head, model, hidden, 0.0)
    return jnp.where((tokens != PAD)[..., None], found, -jnp.inf)


_CLASSIFICATION = TaskHead(
    init=heads.init_classification,
    logits=lambda head, model, hidden, _, rngs: heads.classify(head, model, hidden[:, 0], rngs),
    predict=_best,
    weights=_known,
    choices=lambda found, labels: (found[:, None], _numbers(labels)),
)

HEADS: dict[str, TaskHead] = {
    "classification": _CLASSIFICATION,
    "pair_classification": _CLASSIFICATION._replace(
        init=partial(heads.init_classification, vectors=heads.PAIR_FEATURES), logits=_pair_logits
    ),
    "tagging": TaskHead(
        init=heads.init_token_classification,
        logits=lambda head, model, hidden, _, rngs: heads.classify_tokens(
            head, model, hidden, model.dropout, rngs
        ),
        predict=_best,
        weights=_known,
        choices=lambda found, labels: (found, _numbers(labels)),
    ),
    "question_answering": TaskHead(
        init=lambda rng, model, labels: heads.init_token_classification(rng, model, 2),
        logits=_end_logits,
        predict=lambda found: found,
        weights=lambda labels: jnp.ones(labels.shape),
        choices=lambda found, labels: (found.swapaxes(1, 2), labels),  # both among the positions
    ),
}
"""By kind of rows, as in `config.SUPERVISED`."""
