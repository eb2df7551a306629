"""Fine-tuning on rows with labels; a kind of task (`xlj/tasks/`) says what these are.

A row is the tokens of one example (of one window, if it is long), then its labels. They are kept as
rows are, so most kinds count them from 1, and 0 says that there is none.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.config.objectives.supervised import Supervised
from xlj.contracts.arrays import check
from xlj.data.rows.corpus import Corpus
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.objectives import task_heads
from xlj.objectives.flops import TRAINED, of_layers
from xlj.objectives.objective import Loss, Losses, LossSums, Objective, Params, Rows
from xlj.objectives.segments import whole_examples
from xlj.objectives.task_heads import head_of


class Examples(NamedTuple):
    """Rows taken apart, int32."""

    tokens: jax.Array
    """[rows, length]."""
    labels: jax.Array
    """[rows, labels of a row]."""
    languages: jax.Array
    """[rows, 2]."""


def objective(
    name: str, options: Supervised, model: Model, corpus: Corpus
) -> Objective[Examples, object]:
    """The loss of the kind's head."""
    kind = options.task_kind
    head = task_heads.of_kind(kind)

    def corrupt(rows: Rows, rngs: jax.Array) -> Examples:
        numbers = rows.tokens.astype(jnp.int32)
        return Examples(numbers[:, : options.length], numbers[:, options.length :], rows.languages)

    def count(examples: Examples) -> dict[str, jax.Array]:
        return {name: head.weights(examples.labels).sum(1)}

    def loss(params: Params, state: object, examples: Examples, rngs: Rngs) -> Losses:
        found = logits(kind, params, model, examples.tokens, examples.languages, rngs)
        losses, right = head.losses(found, examples.labels)
        return {name: LossSums.weighted(losses, right, head.weights(examples.labels))}

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=corrupt,
        count=count,
        loss=loss,
        flops=lambda rows, length: TRAINED * of_layers(model, model.layers, rows, options.length),
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
    """The logits of a head for rows.

    Args:
      tokens: int32 [rows, length].
      languages: int32 [rows, 2]; read if the model embeds those of all tokens.
      rngs: a random key of each row, for dropout; None in evaluation.

    Returns:
      float32 [rows, n], or [rows, length, n] of a head `by_token`: of classification and tagging n
      is the number of labels; of question answering 2, starts and ends here, minus infinity at
      padding.
    """
    check(
        "supervised.logits",
        tokens=("int32 [rows, length]", tokens),
        languages=("int32 [rows, 2]", languages),
        rngs=("key [rows]", rngs),
    )
    inputs = whole_examples(model, tokens, languages)
    hidden = encoder.apply(params, model, inputs, rngs)
    return task_heads.of_kind(kind).logits(params[head_of(kind)], model, hidden, tokens, rngs)


def init_head(kind: str, model: Model, labels: int, rng: jax.Array) -> Params:
    """Parameters of a kind's head; that of question answering has no labels."""
    check("init_head", rng=("key []", rng))
    return task_heads.of_kind(kind).init(rng, model, labels)
