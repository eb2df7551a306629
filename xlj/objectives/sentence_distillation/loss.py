"""Distillation of sentence vectors: errors between a student's vectors and stored vectors."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.config.languages import matches_any
from xlj.data.rows.kinds.taught import VECTORS
from xlj.data.rows.store import Corpus
from xlj.models.dropout import Rngs
from xlj.models.segments import is_example
from xlj.objectives.contrast import head
from xlj.objectives.corruption import split
from xlj.objectives.objective import Loss, Losses, LossSums, Objective, Rows
from xlj.objectives.sentence_distillation.options import SentenceDistillation, Teaching
from xlj.sharding.trees import Params


class TaughtInputs(NamedTuple):
    """The sentences that the student reads, and the teacher's vectors."""

    texts: tuple[Rows, ...]
    """One or two sentences for each vector."""
    vectors: jax.Array
    """The teacher's vector of each example, float32 [rows, slots, width]."""
    is_real: jax.Array
    """1 for slots with an example, else 0, float32 [rows, slots]."""


def objective(
    name: str, options: Teaching, model: Model, corpus: Corpus
) -> Objective[TaughtInputs, object]:
    """Builds the objective: the student's vectors approach the teacher's vectors.

    Reimers and Gurevych (2020) minimise the mean squared difference. The loss `squared` is the sum
    over the dimensions instead, so that it is 2 - 2 cos for unit vectors (ours). The student's
    vectors are not normalised before. `cosine` is ours.

    The teacher is not a part of the run: its vectors are fields of the rows. So a training step
    costs the same for any teacher, and the teacher's vocabulary and sizes are free.
    """
    encode = partial(
        head.encode,
        layer=options.layer,
        pooling=options.pooling,
        dense=options.dense,
        activation=options.activation,
    )

    def count(inputs: TaughtInputs) -> dict[str, jax.Array]:
        return {name: len(inputs.texts) * inputs.is_real.sum(1)}

    def loss(params: Params, state: object, inputs: TaughtInputs, rngs: Rngs) -> Losses:
        texts, slots = inputs.texts, inputs.vectors.shape[1]
        of_texts = [None] * len(texts) if rngs is None else split(rngs, len(texts))
        total = jnp.zeros(len(inputs.vectors))
        for text, own_rngs in zip(texts, of_texts, strict=True):
            vectors = encode(params, model, text, slots, own_rngs).astype(jnp.float32)
            errors = _errors(options.loss, vectors, inputs.vectors)  # [rows, slots]
            total += (errors * inputs.is_real).sum(1)
        return {name: LossSums(total, count(inputs)[name], jnp.zeros_like(total))}

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=partial(_corrupt, name, options, model, corpus),
        count=count,
        loss=loss,
        parts=head.parts(model, options.dense, options.bias),
        rules=head.RULES,
    )


def _errors(loss: str, student: jax.Array, teacher: jax.Array) -> jax.Array:
    """Returns the error of each vector of the student, float32 [rows, slots]."""
    if loss == "squared":
        return jnp.square(student - teacher).sum(-1)
    return 1 - (head.normalise(student) * head.normalise(teacher)).sum(-1)


def _corrupt(
    name: str, options: Teaching, model: Model, corpus: Corpus, rows: Rows, rngs: jax.Array
) -> TaughtInputs:
    """Returns the sentences that the student reads, unchanged, and the teacher's vectors.

    Raises:
      ConfigError: if student and teacher have vectors of different sizes.
    """
    options.check_width(f"objectives.{name}", rows[VECTORS].shape[-1], model.hidden)
    kind = options.row_kind
    texts: tuple[Rows, ...] = tuple(
        {**x, "tokens": x["tokens"].astype(jnp.int32)} for x in kind.layout(rows)
    )
    (slots, *_) = kind.slots(rows)
    is_real = is_example(texts[0]["tokens"], slots).astype(jnp.float32)
    if isinstance(options, SentenceDistillation) and options.sides != "both":
        texts = (_choose_side(options, corpus, rows, texts),)
    return TaughtInputs(texts, rows[VECTORS], is_real)


def _choose_side(
    options: SentenceDistillation, corpus: Corpus, rows: Rows, texts: tuple[Rows, ...]
) -> Rows:
    """Returns, for each row, the sentences that the teacher reads, or their translations.

    The first side in a language of the teacher is the side that the teacher reads
    (`vectors.column_of`).
    """
    read = [matches_any(options.languages, code) for code in corpus.languages]
    is_first = jnp.asarray(read)[rows["languages"][:, :1]] == (options.sides == "same")
    first, second = texts
    return {name: jnp.where(is_first, first[name], second[name]) for name in first}
