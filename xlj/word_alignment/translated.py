"""Links of the hidden Markov model that its objective trains (`xlj/objectives/word_hmm.py`)."""

import jax
import jax.numpy as jnp

from xlj.alignment_math import hmm
from xlj.alignment_math.methods import Alignment
from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models import translation
from xlj.models.encoder import Params
from xlj.objectives.word_hmm import HEAD

LEAST = 0.2
"""The product of both directions' probabilities from which two tokens are linked (chosen on en-fr
gold that nothing else is measured on)."""


def align(
    params: Params,
    model: Model,
    hidden: tuple[jax.Array, jax.Array],
    tokens: tuple[jax.Array, jax.Array],
    ids: tuple[jax.Array, jax.Array],
) -> Alignment:
    """Aligns by the probability of each link in both directions, multiplied (Liang, Taskar and
    Klein, 2006).

    Args:
      params: with the objective's head.
      hidden: of both sides, float [..., m, hidden] and [..., n, hidden], of the objective's layer.
      tokens: int32 [..., m] and [..., n].
      ids: int32 [..., m] and [..., n], as in `alignment.sinkhorn.same_example`.
    """
    check(
        "align",
        source=("float [..., m, hidden]", hidden[0]),
        target=("float [..., n, hidden]", hidden[1]),
        source_tokens=("int32 [..., m]", tokens[0]),
        target_tokens=("int32 [..., n]", tokens[1]),
    )
    head, table = params[HEAD], params["embeddings"]["word"]
    asked = [translation.queries(head, model, side) for side in hidden]
    keys = [translation.keys(head, model, table, side) for side in tokens]

    def direction(source: int, target: int) -> jax.Array:
        score = translation.products(asked[source], keys[target], model.dtype)
        nothing = jnp.broadcast_to(head["null_bias"], (*asked[source].shape[:-2], 1, model.hidden))
        null = translation.products(nothing, keys[target], model.dtype)
        emission = hmm.Emission(
            translation.log_ratio(score), translation.log_ratio(null)[..., 0, :]
        )
        jumps = jnp.broadcast_to(head["jump_bias"], (*score.shape[:-2], *head["jump_bias"].shape))
        return hmm.posteriors(emission, jumps, ids[source], ids[target]).emission.source

    soft = direction(0, 1) * direction(1, 0).swapaxes(-1, -2)
    return Alignment(soft, soft >= LEAST)
