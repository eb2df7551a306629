"""Fine-tuning: classification, tagging and question answering, on rows with labels.

A row is the tokens of one example (of one window, if it is long), then its labels. They are kept as
rows are, so 0 says that there is none:
classification: 1 + the class, one number.
pair_classification: likewise; the tokens are those of two sentences, read apart as two examples.
tagging: 1 + the tag, a number a token, at the first piece of each word.
question_answering: two numbers, the positions of the answer's first and last token; 0, which is
that of `<s>`, where the window holds no answer.
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
from xlj.objectives.flops import TRAINED, of_layers
from xlj.objectives.objective import Loss, Losses, LossSums, Objective, Params, Rows
from xlj.objectives.segments import whole_examples
from xlj.objectives.task_heads import HEADS, TaskHead


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
    """Cross-entropy of the labels; of an answer, the mean of its first and its last position's."""
    kind = options.rows

    def corrupt(rows: Rows, rngs: jax.Array) -> Examples:
        numbers = rows.tokens.astype(jnp.int32)
        return Examples(numbers[:, : options.length], numbers[:, options.length :], rows.languages)

    def count(examples: Examples) -> dict[str, jax.Array]:
        return {name: HEADS[kind].weights(examples.labels).sum(1)}

    def loss(params: Params, state: object, examples: Examples, rngs: Rngs) -> Losses:
        found = logits(kind, params, model, examples.tokens, examples.languages, rngs)
        return {name: _loss_sums(HEADS[kind], found, examples.labels)}

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=corrupt,
        count=count,
        loss=loss,
        flops=lambda rows, length: TRAINED * of_layers(model, model.layers, rows, options.length),
        parts={head_of(kind): partial(init_head, kind, model, len(options.labels))},
    )


def head_of(kind: str) -> str:
    """The name of a kind's head among the parameters."""
    return f"{kind}_head"


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
      float32 [rows, classes] (classification, of pairs too), [rows, length, tags] (tagging), or
      [rows, length, 2] (question_answering: starts and ends here; minus infinity at padding).
    """
    check(
        "supervised.logits",
        tokens=("int32 [rows, length]", tokens),
        languages=("int32 [rows, 2]", languages),
        rngs=("key [rows]", rngs),
    )
    inputs = whole_examples(model, tokens, languages)
    hidden = encoder.apply(params, model, inputs, rngs)
    return HEADS[kind].logits(params[head_of(kind)], model, hidden, tokens, rngs)


def init_head(kind: str, model: Model, labels: int, rng: jax.Array) -> Params:
    """Parameters of a kind's head; that of question answering has no labels."""
    check("init_head", rng=("key []", rng))
    return HEADS[kind].init(rng, model, labels)


def _loss_sums(head: TaskHead, found: jax.Array, labels: jax.Array) -> LossSums:
    """The cross-entropy of what `logits` made of rows with `labels`, by row."""
    weights = head.weights(labels)
    found, right = head.choices(found, labels)
    chances = jnp.take_along_axis(jax.nn.log_softmax(found), right[..., None], axis=-1)[..., 0]
    return LossSums.weighted(-chances, found.argmax(-1) == right, weights)
