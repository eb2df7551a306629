"""Sentence retrieval: contrasts translations with the other sentences of the batch."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model, max_pairs
from xlj.contracts.arrays import check
from xlj.data.rows.store import Corpus
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.models.segments import average_examples, is_example, segments, split_sides, whole_examples
from xlj.objectives.corruption import split
from xlj.objectives.objective import ByMicrobatch, Loss, Losses, LossSums, Objective, Rows
from xlj.objectives.retrieval.options import Retrieval
from xlj.sharding.trees import Params

# Similarity of pairs that are not negatives. It is finite: if a sentence has no negative at all,
# the gradient of the logsumexp of -inf would be NaN.
_NEVER = -1e9


class RetrievalInputs(NamedTuple):
    """Both sides of the pairs, and results over the whole batch.

    The results are zeros until `targets` computes them.
    """

    first: Rows
    second: Rows
    gradient_first: jax.Array
    """The gradient of the batch's loss at the vectors of `first`, float32 [rows, pairs, hidden]."""
    gradient_second: jax.Array
    """The gradient of the batch's loss at the vectors of `second`, of the same shape."""
    losses: jax.Array
    """The loss of each pair, float32 [rows, pairs]."""
    correct: jax.Array
    """1 if each side of the pair is more similar to the other side than to any negative, else 0,
    float32 [rows, pairs]."""
    has_negative: jax.Array
    """1 for pairs with a negative in the batch, else 0, float32 [rows, pairs]."""


def objective(
    name: str, options: Retrieval, model: Model, corpus: Corpus
) -> Objective[RetrievalInputs, object]:
    """Builds a contrastive objective on scaled cosines of mean vectors (the temperature is ours).

    `options.negatives` chooses the loss:

    - `hardest`: `hardest_negative_loss`, ERNIE-M's fine-tuning for retrieval (section 4.2).
    - `all`: `all_negatives_loss`, after SimCLR's NT-Xent.

    Negatives may be in other microbatches. So `targets` encodes all rows of the step, without
    dropout (ours). It computes the gradient of the batch's loss at each vector, as in GradCache
    (Gao et al., 2021). `loss` propagates these gradients to the parameters. The result is the same
    for any number of microbatches and devices.
    """
    pair_losses = {"hardest": hardest_negative_loss, "all": all_negatives_loss}[options.negatives]
    layer = encoder.layer_or_middle(options.layer, model.layers)
    vectors = partial(_vectors, model, layer)

    def targets(
        params: Params, state: object, inputs: RetrievalInputs, by_microbatch: ByMicrobatch
    ) -> RetrievalInputs:
        first, second = (
            by_microbatch(lambda rows: vectors(params, rows, None), side)
            for side in (inputs.first, inputs.second)
        )
        shape = inputs.has_negative.shape
        negatives = _negatives(inputs.first["tokens"], inputs.second["tokens"], shape[1])
        has_negative = negatives.any(1).astype(jnp.float32)  # [rows x pairs]

        def compute_batch_loss(
            first: jax.Array, second: jax.Array
        ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            first, second = (side.reshape(-1, model.hidden) for side in (first, second))
            losses, correct = pair_losses(first, second, negatives, 1 / options.temperature)
            losses = losses * has_negative
            return losses.sum(), (losses, correct * has_negative)

        (grad_first, grad_second), results = jax.grad(compute_batch_loss, (0, 1), has_aux=True)(
            first, second
        )
        by_row = (x.reshape(shape) for x in (*results, has_negative))
        return RetrievalInputs(inputs.first, inputs.second, grad_first, grad_second, *by_row)

    def loss(params: Params, state: object, inputs: RetrievalInputs, rngs: Rngs) -> Losses:
        side_rngs = [None] * 2 if rngs is None else split(rngs)
        first, second = (
            vectors(params, rows, own_rngs)
            for rows, own_rngs in zip((inputs.first, inputs.second), side_rngs, strict=True)
        )
        # The value is `inputs.losses`, and the gradient at the vectors is the batch's gradient.
        linear = (inputs.gradient_first * first + inputs.gradient_second * second).sum(-1)
        losses = inputs.losses + (linear - jax.lax.stop_gradient(linear))
        return {name: LossSums(losses.sum(1), inputs.has_negative.sum(1), inputs.correct.sum(1))}

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=partial(_corrupt, model),
        count=lambda inputs: {name: inputs.has_negative.sum(1)},
        loss=loss,
        targets=targets,
    )


def _vectors(model: Model, layer: int, params: Params, rows: Rows, rngs: Rngs) -> jax.Array:
    """Computes unit vectors of the sentences of rows, float32 [rows, pairs, hidden].

    Slots without a sentence have zeros.
    """
    inputs = whole_examples(model, rows["tokens"], rows["languages"])
    hidden = encoder.apply(params, model, inputs, rngs, layers=layer)
    mean = average_examples(hidden, rows["tokens"], max_pairs(2 * rows["tokens"].shape[1]))
    square = (mean * mean).sum(-1, keepdims=True)
    return mean / jnp.sqrt(jnp.maximum(square, 1e-12))  # 1e-12 keeps the gradient of zeros finite


def _corrupt(model: Model, rows: Rows, rngs: jax.Array) -> RetrievalInputs:
    """Returns both sides of the pairs, unchanged."""
    first, second = split_sides(rows)
    zeros = jnp.zeros((len(first["tokens"]), max_pairs(2 * rows["first"].shape[1])))
    gradient = jnp.zeros((*zeros.shape, model.hidden))
    return RetrievalInputs(first, second, gradient, gradient, zeros, zeros, zeros)


def hardest_negative_loss(
    first: jax.Array, second: jax.Array, negatives: jax.Array, scale: float
) -> tuple[jax.Array, jax.Array]:
    """Computes the binary cross-entropy of each translation and its hardest negative.

    The hardest negative of a sentence is the most similar negative on the other side (Faghri et
    al., 2018). The loss of a pair is the sum over both directions.

    Args:
      first, second: unit vectors of both sides of the pairs, float32 [pairs, hidden].
      negatives: entry (i, j) is True if pair j is a negative of pair i, bool [pairs, pairs].
      scale: factor of cosines.

    Returns:
      The loss of each pair, float32 [pairs]. Whether each side of the pair is more similar to the
      other side than to any negative, bool [pairs].
    """
    _check("hardest_negative_loss", first, second, negatives)
    translation = scale * (first * second).sum(1)
    similarity = scale * jnp.matmul(first, second.T, precision="highest")
    similarity = jnp.where(negatives, similarity, _NEVER)
    hardest = similarity.max(1), similarity.max(0)
    losses = 2 * jax.nn.softplus(-translation) + sum(map(jax.nn.softplus, hardest))
    return losses, translation > jnp.maximum(*hardest)


def all_negatives_loss(
    first: jax.Array, second: jax.Array, negatives: jax.Array, scale: float
) -> tuple[jax.Array, jax.Array]:
    """Computes NT-Xent (Chen et al., 2020, Eq. 1), with translations as views.

    The loss of a sentence is -log softmax of its translation among the translation and all
    negatives on both sides. Negatives on the sentence's own side discourage vectors that encode the
    language. The loss of a pair is the sum over both directions.

    Args:
      first, second: unit vectors of both sides of the pairs, float32 [pairs, hidden].
      negatives: entry (i, j) is True if pair j is a negative of pair i, bool [pairs, pairs].
      scale: factor of cosines.

    Returns:
      The loss of each pair, float32 [pairs]. Whether each side of the pair is more similar to the
      other side than to any negative, bool [pairs].
    """
    _check("all_negatives_loss", first, second, negatives)
    translation = jnp.tile(scale * (first * second).sum(1), 2)
    vectors = jnp.concatenate([first, second])
    similarity = scale * jnp.matmul(vectors, vectors.T, precision="highest")
    similarity = jnp.where(jnp.tile(negatives, (2, 2)), similarity, _NEVER)
    losses = jax.nn.softplus(jax.nn.logsumexp(similarity, axis=1) - translation)
    correct = translation > similarity.max(1)
    return losses.reshape(2, -1).sum(0), correct.reshape(2, -1).all(0)


def _check(function: str, first: jax.Array, second: jax.Array, negatives: jax.Array) -> None:
    check(
        function,
        first=("float32 [pairs, hidden]", first),
        second=("float32 [pairs, hidden]", second),
        negatives=("bool [pairs, pairs]", negatives),
    )


def _negatives(first: jax.Array, second: jax.Array, max_pairs_per_row: int) -> jax.Array:
    """Returns which pairs of the batch are negatives of each other: pairs that share no sentence.

    Each side is compared with both sides: a German sentence may be the second sentence of an
    English-German pair and the first sentence of a German-French pair.

    Args:
      first, second: tokens of both sides, int32 [rows, length].
      max_pairs_per_row: number of slots for pairs in a row.

    Returns:
      bool [rows * n, rows * n] for n = max_pairs_per_row.
    """
    sides = [_digests(side, max_pairs_per_row).reshape(-1) for side in (first, second)]
    shared = [one[:, None] == other for one in sides for other in sides]
    real = is_example(first, max_pairs_per_row).reshape(-1)
    return ~jnp.stack(shared).any(0) & real & real[:, None]


def _digests(tokens: jax.Array, max_pairs_per_row: int) -> jax.Array:
    """Returns a hash of each example.

    The hash is a sum over the tokens of the example. Each token is first mixed with its position,
    so that the order of tokens matters. The mixing is the finaliser of MurmurHash3 (Appleby).

    Args:
      tokens: int32 [rows, length].
      max_pairs_per_row: number of slots for examples in a row.

    Returns:
      uint32 [rows, max_pairs_per_row]; 0 in slots without an example.
    """
    layout = segments(tokens)
    positions = layout.position.astype(jnp.uint32)
    mixed = tokens.astype(jnp.uint32) * jnp.uint32(0x9E3779B1) + positions * jnp.uint32(0x85EBCA77)
    mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0xC2B2AE35)
    mixed ^= mixed >> 16
    numbers = jnp.arange(1, max_pairs_per_row + 1)
    select_example = jax.vmap(
        lambda number: jnp.where(layout.segment == number, mixed, 0), out_axes=1
    )
    return select_example(numbers).sum(2, dtype=jnp.uint32)
