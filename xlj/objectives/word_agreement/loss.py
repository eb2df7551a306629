"""Self-training of word alignment, after awesome-align (Dou and Neubig, 2021).

Both sentences of a pair are encoded separately, as `xlj align --encode=apart` does. In each
direction, a softmax over the pieces of the other sentence gives the probability of each link. The
model labels its own pairs: a link is a label if each of its two pieces is the best one for the
other. The loss makes these links more likely in both directions. A second loss, consistency, raises
the probability of returning to a piece by a link to the other sentence and a link back.

Differences from awesome-align: similarities are cosines times a constant, not products of vectors;
labels are the links that both directions rank first, not those above a threshold; losses are
logarithms of probabilities (ours).
"""

import jax
import jax.numpy as jnp

from xlj.alignment_math import extraction
from xlj.alignment_math.sinkhorn import same_example
from xlj.config import Model
from xlj.data.rows.store import Corpus
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.models.segments import split_sides, whole_examples
from xlj.objectives.corruption import split
from xlj.objectives.objective import Loss, Losses, LossSums, Objective, Rows
from xlj.objectives.word_agreement.options import WordAgreement
from xlj.objectives.word_hmm.loss import words_of
from xlj.sharding.trees import Params

Sides = tuple[Rows, Rows]


def objective(
    name: str, options: WordAgreement, model: Model, corpus: Corpus
) -> Objective[Sides, object]:
    """Builds the objective, with the losses `NAME` and `NAME_consistency`.

    The reported accuracy is the share of pieces that have a link on which both directions agree. It
    indicates the quality of alignments without gold alignments.
    """
    consistency = f"{name}_consistency"
    layer = encoder.layer_or_middle(options.layer, model.layers)

    def loss(params: Params, state: object, sides: Sides, rngs: Rngs) -> Losses:
        keys = [None] * 2 if rngs is None else split(rngs)
        first, second = (
            encoder.apply(
                params, model, whole_examples(model, side["tokens"], side["languages"]), key,
                layers=layer,
            )
            for side, key in zip(sides, keys, strict=True)
        )  # fmt: skip
        ids = [words_of(side["tokens"]) for side in sides]
        similarity = extraction.shifted_cosines(first, second)  # [rows, m, n]
        allowed = same_example(*ids)
        links = extraction.argmax(jax.lax.stop_gradient(similarity), *ids)
        scores = jnp.where(allowed, options.scale * (2 * similarity - 1), -1e30)
        # Rows and columns without a piece have uniform probabilities, which nothing reads.
        both = jax.nn.log_softmax(scores, 2) + jax.nn.log_softmax(scores, 1)
        pieces = _count(sides)
        likelihood = jnp.where(links, both, 0).sum((1, 2))
        returns = jnp.where(allowed, jnp.exp(both), 0).sum((1, 2))
        agreed = 2.0 * links.sum((1, 2))
        return {
            name: LossSums(-likelihood, pieces, agreed),
            consistency: LossSums(pieces - 2 * returns, pieces, jnp.zeros_like(pieces)),
        }

    return Objective(
        losses={
            name: Loss(options.weight),
            consistency: Loss(options.weight * options.consistency_weight),
        },
        corrupt=lambda rows, rngs: split_sides(rows),
        count=lambda sides: {name: _count(sides), consistency: _count(sides)},
        loss=loss,
    )


def _count(sides: Sides) -> jax.Array:
    """Counts the pieces of both sides, float32 [rows]."""
    first, second = (words_of(side["tokens"]) > 0 for side in sides)
    return (first.sum(1) + second.sum(1)).astype(jnp.float32)
