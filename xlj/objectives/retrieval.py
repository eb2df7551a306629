"""Sentence retrieval: translations told apart from the other sentences of the batch."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.config.objectives.retrieval import Retrieval
from xlj.data.rows.corpus import Corpus
from xlj.data.tokenizer.layout import PAD
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.objectives.bitext import average, halves
from xlj.objectives.corruption import split
from xlj.objectives.flops import TRAINED, Operations, of_layers
from xlj.objectives.objective import ByMicrobatch, Loss, Losses, LossSums, Objective, Params, Rows
from xlj.objectives.segments import whole_examples

_NEVER = -1e9  # a logit that is never taken, and has a gradient, where -inf has none


class Compared(NamedTuple):
    """Both sides of each pair, and what the batch says of them: zeros until `targets`."""

    first: Rows
    second: Rows
    pull_first: jax.Array
    """The gradient of the whole batch's loss at `first`'s vector, float32 [rows, hidden]."""
    pull_second: jax.Array
    losses: jax.Array
    """The loss of each pair, float32 [rows]."""
    correct: jax.Array
    """1 where each side of the pair is nearer to the other than any negative, float32 [rows]."""
    found: jax.Array
    """1 where the row is a pair and the batch has another, float32 [rows]."""


def objective(name: str, options: Retrieval, model: Model, corpus: Corpus) -> Objective:
    """Losses of scaled cosines of averaged vectors (the scale is ours), by `options.negatives`:

    - `hardest`: ERNIE-M's fine-tuning for retrieval (section 4.2), `against_hardest`.
    - `all`: `against_all`, after SimCLR's NT-Xent.

    Negatives may stand in another microbatch, so `targets` encodes all rows of the step with the
    current parameters and takes the gradient of the batch's loss at each vector, as GradCache does
    (Gao et al., 2021), but without dropout (ours). `loss` carries it on into the parameters.
    Accumulation and sharding change nothing.
    """
    against = {"hardest": against_hardest, "all": against_all}[options.negatives]
    layer = options.layer or encoder.middle_layer(model.layers)

    def vectors(params: Params, rows: Rows, rngs: Rngs) -> jax.Array:
        inputs = whole_examples(model, rows.tokens, rows.languages)
        hidden = encoder.apply(params, model, inputs, rngs, layers=layer)
        mean = average(hidden, rows.tokens)
        square = (mean * mean).sum(1, keepdims=True)
        return mean / jnp.sqrt(jnp.maximum(square, 1e-12))  # padding has a gradient too, of 0

    def corrupt(rows: Rows, rngs: jax.Array) -> Compared:
        first, second = halves(rows)
        pull = jnp.zeros((len(first.tokens), model.hidden))
        number = pull[:, 0]
        return Compared(first, second, pull, pull, number, number, number)

    def targets(
        params: Params, state: object, inputs: Compared, by_microbatch: ByMicrobatch
    ) -> Compared:
        first, second = (
            by_microbatch(lambda rows: vectors(params, rows, None), side)
            for side in (inputs.first, inputs.second)
        )
        negatives = _negatives(inputs.first, inputs.second)
        found = negatives.any(1).astype(jnp.float32)

        def of_batch(
            first: jax.Array, second: jax.Array
        ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            losses, correct = against(first, second, negatives, options.scale)
            losses = losses * found
            return losses.sum(), (losses, correct * found)

        pulls, (losses, correct) = jax.grad(of_batch, argnums=(0, 1), has_aux=True)(first, second)
        return Compared(inputs.first, inputs.second, pulls[0], pulls[1], losses, correct, found)

    def loss(params: Params, state: object, inputs: Compared, rngs: Rngs) -> Losses:
        of_side = [None] * 2 if rngs is None else split(rngs)
        first, second = (
            vectors(params, rows, own)
            for rows, own in zip((inputs.first, inputs.second), of_side, strict=True)
        )
        pulled = (inputs.pull_first * first + inputs.pull_second * second).sum(1)
        losses = inputs.losses + (pulled - jax.lax.stop_gradient(pulled))  # its value is `losses`
        return {name: LossSums(sum=losses, count=inputs.found, correct=inputs.correct)}

    def flops(rows: int, length: int) -> Operations:
        return 2 * (1 + TRAINED) * of_layers(model, layer, rows, length // 2)

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=corrupt,
        count=lambda inputs: {name: inputs.found},
        loss=loss,
        flops=flops,
        targets=targets,
    )


def against_hardest(
    first: jax.Array, second: jax.Array, negatives: jax.Array, scale: float
) -> tuple[jax.Array, jax.Array]:
    """Binary cross-entropy of each translation, and of the most similar sentence of its side that
    is not one (Faghri et al., 2018), in both directions.

    Args:
      first, second: unit vectors of both sides of the pairs, float32 [rows, hidden].
      negatives: which pairs are negatives of which, bool [rows, rows].
      scale: what cosines are multiplied by.

    Returns:
      The loss of each pair, float32 [rows]; whether each side is nearer to the other than to any
      negative, bool [rows].
    """
    right = scale * (first * second).sum(1)
    similarity = scale * jnp.matmul(first, second.T, precision="highest")
    similarity = jnp.where(negatives, similarity, _NEVER)
    wrong = similarity.max(1), similarity.max(0)
    losses = 2 * jax.nn.softplus(-right) + sum(map(jax.nn.softplus, wrong))
    return losses, right > jnp.maximum(*wrong)


def against_all(
    first: jax.Array, second: jax.Array, negatives: jax.Array, scale: float
) -> tuple[jax.Array, jax.Array]:
    """-log softmax of each translation among it and all other sentences of the batch, of both
    sides, in both directions: NT-Xent (Chen et al., 2020, eq. 1), a translation for a view.

    Negatives of its own side keep a vector from saying which language it is of.

    Args, returns: as of `against_hardest`.
    """
    right = jnp.tile(scale * (first * second).sum(1), 2)
    vectors = jnp.concatenate([first, second])
    similarity = scale * jnp.matmul(vectors, vectors.T, precision="highest")
    similarity = jnp.where(jnp.tile(negatives, (2, 2)), similarity, _NEVER)
    losses = jax.nn.softplus(jax.nn.logsumexp(similarity, axis=1) - right)
    correct = right > similarity.max(1)
    return losses.reshape(2, -1).sum(0), correct.reshape(2, -1).all(0)


def _negatives(first: Rows, second: Rows) -> jax.Array:
    """Which pairs of the batch are there and share no sentence, on either side: a sentence of
    English-German may stand in German-French too, bool [rows, rows]."""
    sides = _digests(first.tokens), _digests(second.tokens)
    shared = [one[:, None] == other for one in sides for other in sides]
    real = first.tokens[:, 0] != PAD
    return ~jnp.stack(shared).any(0) & real & real[:, None]


def _digests(tokens: jax.Array) -> jax.Array:
    """32 bits of each row, uint32 [rows]: the sum over its tokens, each mixed with its place as
    MurmurHash3 ends (Appleby), so that tokens which change places change the sum."""
    places = jnp.arange(tokens.shape[1], dtype=jnp.uint32)
    mixed = tokens.astype(jnp.uint32) * jnp.uint32(0x9E3779B1) + places * jnp.uint32(0x85EBCA77)
    mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0xC2B2AE35)
    return (mixed ^ (mixed >> 16)).sum(1, dtype=jnp.uint32)
