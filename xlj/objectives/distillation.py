"""Knowledge distillation from a monolingual teacher, MetaXLM's baseline (Table 3)."""

from typing import NamedTuple, TypedDict

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.config.objectives.distillation import Distillation
from xlj.data.rows.corpus import Corpus
from xlj.data.tokenizer.layout import PAD
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.objectives.flops import TRAINED, Operations, of_layers
from xlj.objectives.objective import Loss, Losses, LossSums, Objective, Params, Rows
from xlj.objectives.segments import whole_examples


class Teacher(TypedDict):
    """What the objective keeps."""

    teacher: Params


class Taught(NamedTuple):
    """Rows, and which of their tokens the teacher knows."""

    rows: Rows
    weights: jax.Array
    """1 for tokens of the teacher's language, 0 for others and padding, float32 [rows, length]."""


def objective(
    name: str, options: Distillation, model: Model, corpus: Corpus
) -> Objective[Taught, Teacher]:
    """Mean squared difference of the last vectors to the teacher's, over the tokens of its language
    (section 5.3; which vectors and which distance the paper does not say, so they are ours).

    State: `teacher`, its parameters; they are read from `teacher` when the run starts.
    """
    language = corpus.languages.index(options.language)

    def corrupt(rows: Rows, rngs: jax.Array) -> Taught:
        tokens = rows.tokens.astype(jnp.int32)
        mine = (tokens != PAD) & (rows.languages[:, :1] == language)
        return Taught(rows._replace(tokens=tokens), mine.astype(jnp.float32))

    def vectors(params: Params, inputs: Taught, rngs: Rngs) -> jax.Array:
        tokens, languages = inputs.rows
        return encoder.apply(params, model, whole_examples(model, tokens, languages), rngs)

    def loss(params: Params, state: Teacher, inputs: Taught, rngs: Rngs) -> Losses:
        taught = jax.lax.stop_gradient(vectors(state["teacher"], inputs, None))
        errors = jnp.square(vectors(params, inputs, rngs) - taught).mean(-1)
        count = inputs.weights.sum(1)
        return {name: LossSums((errors * inputs.weights).sum(1), count, jnp.zeros_like(count))}

    def flops(rows: int, length: int) -> Operations:
        return (1 + TRAINED) * of_layers(model, model.layers, rows, length)

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=corrupt,
        count=lambda inputs: {name: inputs.weights.sum(1)},
        loss=loss,
        flops=flops,
        init_state=lambda params: {"teacher": {n: params[n] for n in encoder.PARTS if n in params}},
    )
