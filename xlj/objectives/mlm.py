"""Masked language modelling: MMLM on monolingual rows, TLM on rows of sentence pairs."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xlj.config import MaskedLanguageModelling, Model
from xlj.models import encoder
from xlj.objectives.corruption import Masked, mask_tokens
from xlj.objectives.cross_entropy import cross_entropy
from xlj.objectives.losses import Tally
from xlj.objectives.segments import segments


def corrupt(
    rows: jax.Array, keys: jax.Array, options: MaskedLanguageModelling, vocabulary_size: int
) -> Masked:
    """The masked form of rows [rows, length] of token ids; `keys` [rows]."""
    return mask_tokens(
        rows,
        keys,
        vocabulary_size=vocabulary_size,
        rate=options.mask_rate,
        mask_share=options.mask_share,
        random_share=options.random_share,
    )


def loss(params: encoder.Params, masked: Masked, keys: jax.Array | None, model: Model) -> Tally:
    """Cross-entropy of the selected tokens (XLM section 3.2 and 3.3; ERNIE-M section 3.2).

    A token sees its own example, and nothing else of the row; in a pair it sees both sentences.

    Args:
      params: as made by `encoder.init`.
      keys: of each row [rows], for dropout; None in evaluation.
    """
    layout = segments(masked.tokens)
    inputs = encoder.Inputs(masked.tokens, layout.position, layout.segment, layout.segment)
    hidden = encoder.apply(params, model, inputs, keys)
    gathered = jnp.take_along_axis(hidden, masked.positions[:, :, None], axis=1)
    vectors, table, bias = encoder.prediction_vectors(params, model, gathered)
    losses, correct = cross_entropy(
        vectors.reshape(-1, vectors.shape[-1]),
        table,
        bias,
        masked.labels.reshape(-1),
        jnp.dtype(model.dtype),
    )
    shape, weights = masked.labels.shape, masked.weights
    return Tally(
        sum=(losses.reshape(shape) * weights).sum(1),
        count=weights.sum(1),
        correct=(correct.reshape(shape) * weights).sum(1),
    )
