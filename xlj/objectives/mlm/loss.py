"""Masked language modelling: MMLM on monolingual rows, TLM on rows of sentence pairs."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.data.rows.store import Corpus
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.models.segments import sees_nothing, whole_examples
from xlj.objectives.corruption import Masked, mask_tokens
from xlj.objectives.masking.options import MaskingOptions
from xlj.objectives.mlm.head import init_prediction, predict
from xlj.objectives.objective import Loss, Losses, LossSums, Objective
from xlj.objectives.vocabulary.cross_entropy import cross_entropy
from xlj.sharding.trees import Params


def whole(model: Model, masked: Masked) -> encoder.Inputs:
    """Returns the encoder's inputs of MMLM and TLM.

    A token sees all tokens of its example; in TLM an example is a pair, so both sentences.
    """
    masked.check("whole")
    return whole_examples(model, masked.tokens, masked.languages)


def objective(
    name: str,
    options: MaskingOptions,
    model: Model,
    corpus: Corpus,
    inputs_of: Callable[[Model, Masked], encoder.Inputs] = whole,
) -> Objective[Masked, object]:
    """Builds masked language modelling; the loss is the cross-entropy of the selected tokens.

    Source: the sections "Masked Language Modeling" and "Translation Language Modeling" of XLM (3.3
    and 3.4); ERNIE-M section 3.2.

    Args:
      inputs_of: (model, masked rows) -> inputs of the encoder, with the attention pattern.
    """

    def loss(params: Params, state: object, masked: Masked, rngs: Rngs) -> Losses:
        hidden = encoder.apply(params, model, inputs_of(model, masked), rngs)
        return {name: prediction_loss(params, params["prediction_head"], model, hidden, masked)}

    return Objective(
        losses={name: Loss(options.weight, over_vocabulary=True)},
        corrupt=partial(mask_tokens, options=options, vocabulary_size=corpus.vocabulary_size),
        count=lambda masked: {name: masked.weights.sum(1)},
        loss=loss,
        parts=prediction_part(model, corpus),
    )


def prediction_part(model: Model, corpus: Corpus) -> dict:
    """Returns the entry of `Objective.parts` for the prediction head: its name and initialiser."""
    size = corpus.vocabulary_size
    return {"prediction_head": partial(init_prediction, model=model, vocabulary_size=size)}


def gather(hidden: jax.Array, positions: jax.Array) -> jax.Array:
    """Returns the vectors of the tokens at some positions.

    Args:
      hidden: float [rows, length, hidden].
      positions: indices in the row, int32 [rows, n].

    Returns:
      [rows, n, hidden], of the dtype of `hidden`.
    """
    check(
        "gather",
        hidden=("float [rows, length, hidden]", hidden),
        positions=("int32 [rows, n]", positions),
    )
    return jnp.take_along_axis(hidden, positions[:, :, None], axis=1)


def prediction_loss(
    params: Params, head: Params, model: Model, hidden: jax.Array, masked: Masked
) -> LossSums:
    """Computes the cross-entropy of the masked tokens, summed by row.

    Args:
      params: parameters of the encoder. A head without a table of its own uses the encoder's word
        embeddings.
      head: parameters of a `Prediction`.
      hidden: the encoder's vectors, float [rows, length, hidden].
      masked: the positions and labels of the predictions.
    """
    masked.check("prediction_loss", hidden=("float [rows, length, hidden]", hidden))
    table = params["embeddings"]["word"]
    vectors, table, bias = predict(head, table, model, gather(hidden, masked.positions))
    losses, correct = cross_entropy(
        vectors.reshape(-1, vectors.shape[-1]),
        table,
        bias,
        masked.labels.reshape(-1),
        jnp.dtype(model.dtype),
    )
    shape = masked.labels.shape
    return LossSums.weighted(losses.reshape(shape), correct.reshape(shape), masked.weights)


def blind_share(
    model: Model, inputs: encoder.Inputs, positions: jax.Array, weights: jax.Array
) -> LossSums:
    """Counts the tokens that see no key in local layers, as a loss.

    The loss of a token is 1 if it sees no key, else 0. So the mean of the loss is the share of such
    tokens.

    Args:
      inputs: of the encoder.
      positions: indices in the row of the tokens to count, int32 [rows, n].
      weights: 1 for positions that count, 0 for unused slots, float32 [rows, n].
    """
    check(
        "blind_share",
        positions=("int32 [rows, n]", positions),
        weights=("float32 [rows, n]", weights),
    )
    is_blind = sees_nothing(inputs, model.local_attention // 2)
    blind = jnp.take_along_axis(is_blind, positions, axis=1).astype(jnp.float32)
    return LossSums.weighted(blind, jnp.zeros_like(blind), weights)
