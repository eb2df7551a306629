"""Knowledge distillation from a monolingual teacher, MetaXLM's baseline (Table 3)."""

from typing import NamedTuple, TypedDict

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.config.languages import matching
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer.layout import PAD
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.models.segments import whole_examples
from xlj.objectives.distillation.options import Distillation
from xlj.objectives.objective import Loss, Losses, LossSums, Objective, Rows
from xlj.sharding.trees import Params


class TeacherState(TypedDict):
    """The state of the objective."""

    teacher: Params
    """Parameters of the teacher's encoder."""


class DistillationInputs(NamedTuple):
    """Rows, and a mask of the tokens in the teacher's language."""

    rows: Rows
    weights: jax.Array
    """1 for tokens of the teacher's language, 0 for all other tokens, float32 [rows, length]."""


def objective(
    name: str, options: Distillation, model: Model, corpus: Corpus
) -> Objective[DistillationInputs, TeacherState]:
    """Builds the objective: the model's vectors approach a teacher's vectors (section 5.3).

    The loss is the mean squared difference between the vectors of the last layers of both models.
    The mean is over tokens of the teacher's language. The paper specifies neither the vectors nor
    the distance; both are ours.

    The state `teacher` has the teacher's parameters. When the run starts, xlj reads them from the
    model that `objectives.NAME.teacher` names.
    """
    language = corpus.languages.index(matching(options.language, corpus.languages)[0])

    def corrupt(rows: Rows, rngs: jax.Array) -> DistillationInputs:
        tokens = rows["tokens"].astype(jnp.int32)
        is_known = (tokens != PAD) & (rows["languages"][:, :1] == language)
        return DistillationInputs({**rows, "tokens": tokens}, is_known.astype(jnp.float32))

    def vectors(params: Params, inputs: DistillationInputs, rngs: Rngs) -> jax.Array:
        rows = inputs.rows
        whole = whole_examples(model, rows["tokens"], rows["languages"])
        return encoder.apply(params, model, whole, rngs)

    def loss(params: Params, state: TeacherState, inputs: DistillationInputs, rngs: Rngs) -> Losses:
        targets = jax.lax.stop_gradient(vectors(state["teacher"], inputs, None))
        errors = jnp.square(vectors(params, inputs, rngs) - targets).mean(-1)  # [rows, length]
        count = inputs.weights.sum(1)
        return {name: LossSums((errors * inputs.weights).sum(1), count, jnp.zeros_like(count))}

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=corrupt,
        count=lambda inputs: {name: inputs.weights.sum(1)},
        loss=loss,
        init_state=lambda params: {"teacher": {n: params[n] for n in encoder.PARTS if n in params}},
    )
