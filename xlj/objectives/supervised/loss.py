"""Fine-tuning on rows with labels, which a kind of task (`xlj/tasks/`) defines.

A row has the tokens of one example, or of one window of a long example, and the labels that its
kind of task defines.
"""

from functools import partial

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.data.rows.store import Corpus
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.models.segments import whole_examples
from xlj.objectives.objective import Loss, Losses, LossSums, Objective, Rows
from xlj.objectives.supervised.head import head_of, of_kind
from xlj.objectives.supervised.options import Supervised
from xlj.sharding.trees import Params


def objective(
    name: str, options: Supervised, model: Model, corpus: Corpus
) -> Objective[Rows, object]:
    """Builds the objective of `options.task_kind`, with the loss of its head."""
    kind = options.task_kind
    head = of_kind(kind)

    def corrupt(rows: Rows, rngs: jax.Array) -> Rows:
        return {**rows, "tokens": rows["tokens"].astype(jnp.int32)}

    def count(rows: Rows) -> dict[str, jax.Array]:
        return {name: head.weights(rows).sum(1)}

    def loss(params: Params, state: object, rows: Rows, rngs: Rngs) -> Losses:
        of_head = logits(kind, params, model, rows["tokens"], rows["languages"], rngs)
        losses, correct = head.losses(of_head, rows)
        return {name: LossSums.weighted(losses, correct, head.weights(rows))}

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=corrupt,
        count=count,
        loss=loss,
        parts={head_of(kind): partial(init_head, kind, model, len(options.labels))},
    )


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
    """
    check(
        "supervised.logits",
        tokens=("int32 [rows, length]", tokens),
        languages=("int32 [rows, 2]", languages),
        rngs=("key [rows]", rngs),
    )
    inputs = whole_examples(model, tokens, languages)
    hidden = encoder.apply(params, model, inputs, rngs)
    return of_kind(kind).logits(params[head_of(kind)], model, hidden, tokens, rngs)


def init_head(kind: str, model: Model, labels: int, rng: jax.Array) -> Params:
    """Returns new parameters of a task's head.

    Args:
      kind: the kind of task.
      labels: number of labels; 0 for kinds of task without labels, such as question answering.
    """
    check("init_head", rng=("key []", rng))
    return of_kind(kind).init(rng, model, labels)
