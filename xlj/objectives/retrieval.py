"""Sentence retrieval: translations told apart from the other sentences of the batch."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model, max_pairs
from xlj.config.objectives.retrieval import Retrieval
from xlj.contracts.arrays import check
from xlj.data.rows.corpus import Corpus
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.objectives.bitext import averages, halves, is_there
from xlj.objectives.corruption import split
from xlj.objectives.flops import TRAINED, of_layers
from xlj.objectives.objective import ByMicrobatch, Loss, Losses, LossSums, Objective, Params, Rows
from xlj.objectives.segments import segments, whole_examples

_NEVER = -1e9  # a logit that is never taken, and has a gradient, where -inf has none


class Compared(NamedTuple):
    """Both sides of the pairs, and what the batch says of them: zeros until `targets`."""

    first: Rows
    second: Rows
    pull_first: jax.Array
    """The gradient of the batch's loss at `first`'s vectors, float32 [rows, pairs, hidden]."""
    pull_second: jax.Array
    losses: jax.Array
    """The loss of each pair, float32 [rows, pairs]."""
    correct: jax.Array
    """1 where each side of the pair is nearer to the other than any negative, [rows, pairs]."""
    found: jax.Array
    """1 where there is a pair and the batch has another, float32 [rows, pairs]."""


def objective(
    name: str, options: Retrieval, model: Model, corpus: Corpus
) -> Objective[Compared, object]:
    """Losses of scaled cosines of averaged vectors (the scale is ours), by `options.negatives`:

    - `hardest`: ERNIE-M's fine-tuning for retrieval (section 4.2), `against_hardest`.
    - `all`: `against_all`, after SimCLR's NT-Xent.

    Negatives may stand in another microbatch, so `targets` encodes all rows of the step with the
    current parameters and takes the gradient of the batch's loss at each vector, as GradCache does
    (Gao et al., 2021), but without dropout (ours). `loss` carries it on into the parameters.
    Accumulation and sharding change nothing.
    """
    against = {"hardest": against_hardest, "all": against_all}[options.negatives]
    layer = encoder.layer_or_middle(options.layer, model.layers)
    vectors = partial(_vectors, model, layer)

    def targets(
        params: Params, state: object, inputs: Compared, by_microbatch: ByMicrobatch
    ) -> Compared:
        first, second = (
            by_microbatch(lambda rows: vectors(params, rows, None), side)
            for side in (inputs.first, inputs.second)
        )
        shape = inputs.found.shape
        negatives = _negatives(inputs.first.tokens, inputs.second.tokens, shape[1])
        found = negatives.any(1).astype(jnp.float32)

        def of_batch(
            first: jax.Array, second: jax.Array
        ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            first, second = (side.reshape(-1, model.hidden) for side in (first, second))
            losses, correct = against(first, second, negatives, options.scale)
            losses = losses * found
            return losses.sum(), (losses, correct * found)

        pulls, made = jax.grad(of_batch, argnums=(0, 1), has_aux=True)(first, second)
        losses, correct, found = (x.reshape(shape) for x in (*made, found))
        return Compared(inputs.first, inputs.second, pulls[0], pulls[1], losses, correct, found)

    def loss(params: Params, state: object, inputs: Compared, rngs: Rngs) -> Losses:
        of_side = [None] * 2 if rngs is None else split(rngs)
        first, second = (
            vectors(params, rows, own)
            for rows, own in zip((inputs.first, inputs.second), of_side, strict=True)
        )
        pulled = (inputs.pull_first * first + inputs.pull_second * second).sum(-1)
        losses = inputs.losses + (pulled - jax.lax.stop_gradient(pulled))  # its value is `losses`
        return {name: LossSums(losses.sum(1), inputs.found.sum(1), inputs.correct.sum(1))}

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=partial(_corrupt, model),
        count=lambda inputs: {name: inputs.found.sum(1)},
        loss=loss,
        flops=lambda rows, length: 2 * (1 + TRAINED) * of_layers(model, layer, rows, length // 2),
        targets=targets,
    )


def _vectors(model: Model, layer: int, params: Params, rows: Rows, rngs: Rngs) -> jax.Array:
    """Unit vectors of the sentences of rows, float32 [rows, pairs, hidden]."""
    inputs = whole_examples(model, rows.tokens, rows.languages)
    hidden = encoder.apply(params, model, inputs, rngs, layers=layer)
    mean = averages(hidden, rows.tokens, max_pairs(2 * rows.tokens.shape[1]))
    square = (mean * mean).sum(-1, keepdims=True)
    return mean / jnp.sqrt(jnp.maximum(square, 1e-12))  # padding has a gradient too, of 0


def _corrupt(model: Model, rows: Rows, rngs: jax.Array) -> Compared:
    """Both sides of the pairs, as they are."""
    first, second = halves(rows)
    number = jnp.zeros((len(first.tokens), max_pairs(rows.tokens.shape[1])))
    pull = jnp.zeros((*number.shape, model.hidden))
    return Compared(first, second, pull, pull, number, number, number)


def against_hardest(
    first: jax.Array, second: jax.Array, negatives: jax.Array, scale: float
) -> tuple[jax.Array, jax.Array]:
    """Binary cross-entropy of each translation, and of the most similar sentence of its side that
    is not one (Faghri et al., 2018), in both directions.

    Args:
      first, second: unit vectors of both sides of the pairs, float32 [pairs, hidden].
      negatives: which pairs are negatives of which, bool [pairs, pairs].
      scale: what cosines are multiplied by.

    Returns:
      The loss of each pair, float32 [pairs]; whether each side is nearer to the other than to any
      negative, bool [pairs].
    """
    _check("against_hardest", first, second, negatives)
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
    _check("against_all", first, second, negatives)
    right = jnp.tile(scale * (first * second).sum(1), 2)
    vectors = jnp.concatenate([first, second])
    similarity = scale * jnp.matmul(vectors, vectors.T, precision="highest")
    similarity = jnp.where(jnp.tile(negatives, (2, 2)), similarity, _NEVER)
    losses = jax.nn.softplus(jax.nn.logsumexp(similarity, axis=1) - right)
    correct = right > similarity.max(1)
    return losses.reshape(2, -1).sum(0), correct.reshape(2, -1).all(0)


def _check(function: str, first: jax.Array, second: jax.Array, negatives: jax.Array) -> None:
    check(
        function,
        first=("float32 [pairs, hidden]", first),
        second=("float32 [pairs, hidden]", second),
        negatives=("bool [pairs, pairs]", negatives),
    )


def _negatives(first: jax.Array, second: jax.Array, most: int) -> jax.Array:
    """Which pairs of the batch are there and share no sentence, on either side: a sentence of
    English-German may stand in German-French too.

    Args:
      first, second: tokens of both sides, int32 [rows, length].
      most: pairs that a row may have.

    Returns:
      bool [rows x most, rows x most].
    """
    sides = [_digests(side, most).reshape(-1) for side in (first, second)]
    shared = [one[:, None] == other for one in sides for other in sides]
    real = is_there(first, most).reshape(-1)
    return ~jnp.stack(shared).any(0) & real & real[:, None]


def _digests(tokens: jax.Array, most: int) -> jax.Array:
    """32 bits of each of `most` examples of rows [rows, length], uint32 [rows, most]: the sum over
    its tokens, each mixed with its place as MurmurHash3 ends (Appleby), so that tokens which change
    places change the sum."""
    layout = segments(tokens)
    places = layout.position.astype(jnp.uint32)
    mixed = tokens.astype(jnp.uint32) * jnp.uint32(0x9E3779B1) + places * jnp.uint32(0x85EBCA77)
    mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0xC2B2AE35)
    mixed ^= mixed >> 16
    numbers = jnp.arange(1, most + 1)
    own = jax.vmap(lambda number: jnp.where(layout.segment == number, mixed, 0), out_axes=1)
    return own(numbers).sum(2, dtype=jnp.uint32)
