"""Cross-attention masked language modelling (CAMLM): predicts each side from the other only."""

import dataclasses

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check_ids
from xlj.data.rows.store import Corpus
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.models.segments import Segments, languages_of, segments
from xlj.objectives.corruption import Masked
from xlj.objectives.masking.options import MaskingOptions
from xlj.objectives.mlm import loss as mlm
from xlj.objectives.objective import Loss, Losses, Objective
from xlj.sharding.trees import Params

UNSEEN = -1
"""A segment id for keys that no token may see. No query has this id."""


def objective(
    name: str, options: MaskingOptions, model: Model, corpus: Corpus
) -> Objective[Masked, object]:
    """Builds the objective CAMLM (ERNIE-M section 3.2).

    The attention pattern follows the paper's formula: a predicted token sees nothing of its side.

    In local layers, all tokens of the other side may be outside a predicted token's window. The
    share of such tokens is reported as `NAME_blind`, a loss of weight 0.
    """
    plain = mlm.objective(name, options, model, corpus, inputs_of)
    if not model.local_attention:
        return plain
    blind = f"{name}_blind"

    def count(masked: Masked) -> dict[str, jax.Array]:
        return {**plain.count(masked), blind: masked.weights.sum(1)}

    def loss(params: Params, state: object, masked: Masked, rngs: Rngs) -> Losses:
        share = mlm.blind_share(model, inputs_of(model, masked), masked.positions, masked.weights)
        return {**plain.loss(params, state, masked, rngs), blind: share}

    losses = {**plain.losses, blind: Loss(0.0)}
    return dataclasses.replace(plain, losses=losses, count=count, loss=loss)


def inputs_of(model: Model, masked: Masked) -> encoder.Inputs:
    """Returns the encoder's inputs: tokens, CAMLM's attention pattern, and languages if the model
    embeds them."""
    masked.check("camlm.inputs_of")
    layout, selected = segments(masked.tokens), masked.selected()
    query_segment_ids, key_segment_ids = pattern(layout, selected)
    languages = None
    if model.language_embeddings != "none":
        languages = languages_of(layout, masked.languages)
        if model.language_embeddings == "predicted":
            languages = jnp.where(selected, languages, -1)
    return encoder.Inputs(
        masked.tokens, layout.position, query_segment_ids, key_segment_ids, languages, layout.side
    )


def pattern(layout: Segments, selected: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the segment ids of queries and of keys, int32 [rows, length] each.

    A token that is selected for prediction (masked, random or unchanged) sees the unselected tokens
    of the other side of its example. No token sees a selected token. All other tokens see the
    unselected tokens of their own side. So at any depth, a prediction depends on nothing of its own
    side, except the input embeddings of the predicted token after masking: token, position and
    language.

    Args:
      layout: the examples and sides of the rows.
      selected: the tokens to predict, bool [rows, length].
    """
    check_ids("pattern", layout, selected=("bool [rows, length]", selected))
    own_side = 2 * layout.segment + layout.side
    other_side = 2 * layout.segment + 1 - layout.side
    return jnp.where(selected, other_side, own_side), jnp.where(selected, UNSEEN, own_side)
