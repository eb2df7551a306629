"""Fine-tuning on rows with labels, which a kind of task (`xlj/tasks/`) defines.

A row has the tokens of one example, or of one window of a long example, and the labels that its
kind of task defines.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.data.rows.store import Corpus
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.models.segments import whole_examples
from xlj.objectives.contrast.scoring import Scored, order_pairs
from xlj.objectives.objective import (
    ByMicrobatch,
    Loss,
    Losses,
    LossSums,
    Objective,
    Rows,
    with_gradient,
)
from xlj.objectives.supervised.head import head_of, of_kind
from xlj.objectives.supervised.options import Supervised
from xlj.sharding import devices
from xlj.sharding.devices import ROWS
from xlj.sharding.trees import Params


class Ordered(NamedTuple):
    """Rows, and results over the whole batch. The results are zeros until `targets` computes them.

    Attributes:
      rows: the fields of the rows.
      gradients: the gradient of the batch's loss at the score of each row, float32 [rows].
      scored: the loss of each row, whether its score has the right order, and whether it is
        counted.
    """

    rows: Rows
    gradients: jax.Array
    scored: Scored


def objective(
    name: str, options: Supervised, model: Model, corpus: Corpus
) -> Objective[Any, object]:
    """Builds the objective of `options.task_kind`, with the loss of its head, or of the order of
    its scores (`options.loss`)."""
    kind = options.task_kind
    build = _of_order if options.loss == "order" else _of_rows
    return dataclasses.replace(
        build(name, kind, model),
        losses={name: Loss(options.weight)},
        parts={head_of(kind): partial(init_head, kind, model, len(options.labels))},
    )


def _of_rows(name: str, kind: str, model: Model) -> Objective[Rows, object]:
    """Returns the functions of an objective whose rows have losses of their own."""
    head = of_kind(kind)

    def count(rows: Rows) -> dict[str, jax.Array]:
        return {name: head.weights(rows).sum(1)}

    def loss(params: Params, state: object, rows: Rows, rngs: Rngs) -> Losses:
        of_head = logits(kind, params, model, rows["tokens"], rows["languages"], rngs)
        losses, correct = head.losses(of_head, rows)
        return {name: LossSums.weighted(losses, correct, head.weights(rows))}

    return Objective(losses={}, corrupt=_with_int32, count=count, loss=loss)


def _of_order(name: str, kind: str, model: Model) -> Objective[Ordered, object]:
    """Returns the functions of an objective that compares the scores of all rows of a batch.

    The rows may be in other microbatches, so `targets` computes the scores of all of them, without
    dropout, as in the objective `contrast`.
    """
    gold = of_kind(kind).gold
    assert gold is not None, kind

    def scores_of(params: Params, rows: Rows, rngs: Rngs) -> jax.Array:
        return logits(kind, params, model, rows["tokens"], rows["languages"], rngs)[:, 0]

    def corrupt(rows: Rows, rngs: jax.Array) -> Ordered:
        zeros = jnp.zeros(len(rows["tokens"]))
        return Ordered(_with_int32(rows, rngs), zeros, Scored(zeros, zeros, zeros))

    def targets(
        params: Params, state: object, inputs: Ordered, by_microbatch: ByMicrobatch
    ) -> Ordered:
        scores = by_microbatch(lambda rows: scores_of(params, rows, None), inputs.rows)
        return Ordered(inputs.rows, *_order_gradients(scores, gold(inputs.rows)))

    def count(inputs: Ordered) -> dict[str, jax.Array]:
        return {name: inputs.scored.is_counted}

    def loss(params: Params, state: object, inputs: Ordered, rngs: Rngs) -> Losses:
        scores = scores_of(params, inputs.rows, rngs)
        scored = inputs.scored
        losses = with_gradient(scored.losses, inputs.gradients, scores)
        return {name: LossSums(losses, scored.is_counted, scored.correct)}

    return Objective(losses={}, corrupt=corrupt, count=count, loss=loss, targets=targets)


def _order_gradients(scores: jax.Array, gold: jax.Array) -> tuple[jax.Array, Scored]:
    """Computes the loss of the order of a batch's scores, and its gradient at each score.

    Args:
      scores: of all rows, float32 [rows].
      gold: the gold scores, float32 [rows]; NaN if unknown.
    """

    def on_device(scores: jax.Array, gold: jax.Array) -> tuple[jax.Array, Scored]:
        def total(scores: jax.Array) -> tuple[jax.Array, Scored]:
            scored = order_pairs(scores, gold, jnp.ones(scores.shape, bool))
            return scored.losses.sum(), scored

        return jax.grad(total, has_aux=True)(scores)

    return devices.per_device(on_device, (ROWS, ROWS), ROWS)(scores, gold)


def _with_int32(rows: Rows, rngs: jax.Array) -> Rows:
    return {**rows, "tokens": rows["tokens"].astype(jnp.int32)}


def logits(
    kind: str,
    params: Params,
    model: Model,
    tokens: jax.Array,
    languages: jax.Array,
    rngs: Rngs = None,
) -> jax.Array:
    """Computes the logits of a task's head.

    Args:
      kind: the kind of task.
      params: the parameters of the encoder and the head.
      tokens: int32 [rows, length].
      languages: the language of each side of a row, int32 [rows, 2]; only used with
        `model.language_embeddings=all`.
      rngs: a random key for each row [rows], for dropout; None in evaluation.

    Returns:
      float32 [rows, n], or [rows, length, n] if the head has logits for each token
      (`TaskHead.by_token`). In classification and tagging, n is the number of labels. In question
      answering, n is 2: "the answer starts here" and "the answer ends here", with -inf at padding.
      For word links, n is the length (`word_links.logits`).
    """
    check(
        "supervised.logits",
        tokens=("int32 [rows, length]", tokens),
        languages=("int32 [rows, 2]", languages),
        rngs=("key [rows]", rngs),
    )
    inputs, head = whole_examples(model, tokens, languages), of_kind(kind)
    layers = encoder.middle_layer(model.layers) if head.reads_middle else None
    hidden = encoder.apply(params, model, inputs, rngs, layers=layers)
    return head.logits(params[head_of(kind)], model, hidden, tokens, rngs)


def init_head(kind: str, model: Model, labels: int, rng: jax.Array) -> Params:
    """Returns new parameters of a task's head.

    Args:
      kind: the kind of task.
      labels: number of labels; 0 for kinds of task without labels, such as question answering.
    """
    check("init_head", rng=("key []", rng))
    return of_kind(kind).init(rng, model, labels)
