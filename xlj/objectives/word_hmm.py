"""Word alignment by likelihood: a hidden Markov model of translation over an encoder's vectors.

Each sentence of a pair is generated from the other: a token by the vector of a token there, at a
place that moves by jumps, or by nothing (`alignment_math.hmm`). The model is Vogel, Ney and
Tillmann's (1996); that its translation probabilities are a softmax of products of vectors is ours,
as is the softmax over pieces that other sentences of the batch have.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.alignment_math import hmm
from xlj.config import Model
from xlj.config.objectives.word_hmm import WordHMM
from xlj.contracts.arrays import check
from xlj.data.rows.corpus import Corpus
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder, translation
from xlj.models.dense import precision_of
from xlj.models.dropout import Rngs
from xlj.objectives.bitext import halves
from xlj.objectives.corruption import split
from xlj.objectives.flops import TRAINED, Operations, of_layers
from xlj.objectives.objective import Loss, Losses, LossSums, Objective, Params, Rows
from xlj.objectives.segments import segments, whole_examples

HEAD = "word_hmm_head"


class Noisy(NamedTuple):
    """Both sides of the pairs, and pieces that translations are told apart from."""

    first: Rows
    second: Rows
    noise: jax.Array
    """Tokens of the batch's first and second sides, int32 [rows, 2, noise], the same in every row;
    PAD for none."""


class _Side(NamedTuple):
    """A side of the pairs, read."""

    words: jax.Array  # the example of each token, 0 of specials: int32 [rows, tokens]
    queries: jax.Array  # float32 [rows, tokens, hidden]
    keys: jax.Array  # likewise
    noise: jax.Array  # keys of its language's pieces, float32 [noise, hidden]
    is_noise: jax.Array  # bool [noise]


class _Direction(NamedTuple):
    """One side generated from the other."""

    emission: hmm.Emission
    jumps: jax.Array  # logits, float32 [rows, jumps]
    found: hmm.Posteriors
    normaliser: jax.Array  # the sum over tokens of the squared logarithm, float32 [rows]


def objective(
    name: str, options: WordHMM, model: Model, corpus: Corpus
) -> Objective[Noisy, object]:
    """The likelihood of both sentences, each given the other, over what chance would give.

    `accuracy` is the share of tokens on whose link both directions agree: it tells without gold
    whether the words align.
    """
    normaliser = f"{name}_normaliser"

    def loss(params: Params, state: object, inputs: Noisy, rngs: Rngs) -> Losses:
        of_side = [None] * 2 if rngs is None else split(rngs)
        first, second = (
            _read(params, model, options.layer, side, inputs.noise[0, i], of_side[i])
            for i, side in enumerate((inputs.first, inputs.second))
        )
        head = params[HEAD]
        forth = _generated(head, model, first, second)
        back = _generated(head, model, second, first)
        both = forth.found.emission.source * back.found.emission.source.swapaxes(1, 2)
        tokens = _tokens(inputs)
        likelihood = _taught(forth, both, second.words, options.agreement)
        likelihood += _taught(back, both.swapaxes(1, 2), first.words, options.agreement)
        return {
            name: LossSums(-likelihood, tokens, 2.0 * _agreed(both, forth, back)),
            normaliser: LossSums(
                forth.normaliser + back.normaliser, tokens, jnp.zeros_like(tokens)
            ),
        }

    return Objective(
        losses={
            name: Loss(options.weight),
            normaliser: Loss(options.weight * options.normaliser_weight),
        },
        corrupt=_corrupt,
        count=lambda inputs: {name: _tokens(inputs), normaliser: _tokens(inputs)},
        loss=loss,
        flops=partial(_flops, model, options.layer),
        parts={HEAD: partial(translation.init, model=model, longest_jump=hmm.LONGEST_JUMP)},
    )


def words_of(tokens: jax.Array) -> jax.Array:
    """The example of each token of a side, 0 of specials: int [rows, length] -> int32 likewise."""
    check("words_of", tokens=("int [rows, length]", tokens))
    word = (tokens != BOS) & (tokens != EOS) & (tokens != PAD)
    return jnp.where(word, segments(tokens).segment, 0)


def _tokens(inputs: Noisy) -> jax.Array:
    """Tokens that are generated, float32 [rows]."""
    first, second = (words_of(side.tokens) > 0 for side in (inputs.first, inputs.second))
    return (first.sum(1) + second.sum(1)).astype(jnp.float32)


def _corrupt(rows: Rows, rngs: jax.Array) -> Noisy:
    """Both sides as they are, and tokens of all rows, drawn without replacement."""
    first, second = halves(rows)
    drawn = []
    for side, keys in zip((first, second), split(rngs), strict=True):
        order = jax.vmap(partial(jax.random.uniform, shape=side.tokens.shape[1:]))(keys)
        order = jnp.where(words_of(side.tokens) > 0, order, 2.0).reshape(-1)
        size = min(translation.NOISE, len(order))
        places = jnp.argsort(order, stable=True)[:size]
        tokens = jnp.where(order[places] < 2, side.tokens.reshape(-1)[places], PAD)
        drawn.append(jnp.pad(tokens, (0, translation.NOISE - size), constant_values=PAD))
    noise = jnp.broadcast_to(jnp.stack(drawn), (len(rows.tokens), 2, translation.NOISE))
    return Noisy(first, second, noise.astype(jnp.int32))


def _read(
    params: Params, model: Model, layer: int, side: Rows, noise: jax.Array, rngs: Rngs
) -> _Side:
    inputs = whole_examples(model, side.tokens, side.languages)
    hidden = encoder.apply(params, model, inputs, rngs, layers=layer)
    head, table = params[HEAD], params["embeddings"]["word"]
    return _Side(
        words_of(side.tokens),
        translation.queries(head, model, hidden),
        translation.keys(head, model, table, side.tokens),
        translation.keys(head, model, table, noise),
        noise != PAD,
    )


def _generated(head: Params, model: Model, source: _Side, target: _Side) -> _Direction:
    """The target from the source, and what is expected of the alignment."""
    asked = jnp.concatenate([source.queries, _null(head, source.queries)], axis=1)
    wanted = translation.products(asked, target.keys, model.dtype)
    dtype = jnp.dtype(model.dtype)
    narrow = asked.astype(dtype), target.noise.astype(dtype)
    others = jnp.einsum("rmh,nh->rmn", *narrow, precision=precision_of(dtype))
    others = jnp.where(target.is_noise, others.astype(jnp.float32), -1e30)
    mean = jax.nn.logsumexp(others, axis=2) - jnp.log(jnp.maximum(target.is_noise.sum(), 1))
    ratio = translation.log_ratio(wanted, mean[:, :, None])
    emission = hmm.Emission(ratio[:, :-1], ratio[:, -1])
    jumps = jnp.broadcast_to(head["jump_bias"], (len(asked), *head["jump_bias"].shape))
    given = jax.lax.stop_gradient((emission, jumps))
    found = hmm.posteriors(*given, source.words, target.words)
    is_word = source.words > 0
    normaliser = jnp.where(is_word, mean[:, :-1] ** 2, 0).sum(1)
    normaliser += mean[:, -1] ** 2 * is_word.any(1)
    return _Direction(emission, jumps, found, normaliser)


def _taught(
    direction: _Direction, both: jax.Array, targets: jax.Array, agreement: float
) -> jax.Array:
    """The likelihood of a direction, float32 [rows], with the gradient of expectation and
    maximisation: the derivative by what tokens emit is what the alignment is expected to be.

    A share `agreement` of this is what both directions expect, the product of their probabilities
    (Liang, Taskar and Klein, 2006), and none for the rest of a token.

    Args:
      both: float32 [rows, m, n].
      targets: the example of each token that is generated, int32 [rows, n].
    """
    emission, jumps, found, _ = direction
    none = jnp.where(targets > 0, 1.0 - both.sum(1), 0.0)
    source = (1.0 - agreement) * found.emission.source + agreement * both
    null = (1.0 - agreement) * found.emission.null + agreement * none
    expected = (
        (source * emission.source).sum((1, 2))
        + (null * emission.null).sum(1)
        + (found.jumps * jumps).sum(1)
    )
    return found.log_likelihood + expected - jax.lax.stop_gradient(expected)


def _null(head: Params, queries: jax.Array) -> jax.Array:
    """What a token without a source is asked for by, [rows, 1, hidden]."""
    return jnp.broadcast_to(head["null_bias"], (len(queries), 1, queries.shape[2]))


def _agreed(both: jax.Array, forth: _Direction, back: _Direction) -> jax.Array:
    """Links that are the likeliest of both their tokens in either direction, float32 [rows]."""
    first, second = (direction.found.emission.source for direction in (forth, back))
    first = first >= first.max(1, keepdims=True)
    second = second >= second.max(1, keepdims=True)
    return (first & second.swapaxes(1, 2) & (both > 0)).sum((1, 2)).astype(jnp.float32)


def _flops(model: Model, layer: int, rows: int, length: int) -> Operations:
    """Operations of a step: the encoder, the products, and the forward-backward algorithm."""
    side = length // 2
    read = 2 * TRAINED * of_layers(model, layer, rows, side)
    products = 2.0 * rows * side * model.hidden * (side + translation.NOISE + 2 * model.hidden)
    moves = 3 * 2.0 * rows * side**3
    return read + Operations(other=2 * (TRAINED * products + moves))
