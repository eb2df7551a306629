"""Word alignment as a hidden Markov model of translation over an encoder's vectors.

The model generates each sentence of a pair from the other one. A token is generated from the vector
of a source token, whose place moves by jumps, or from no token (`alignment_math.hmm`). The model is
that of Vogel, Ney and Tillmann (1996). Translation probabilities from a softmax of products of
vectors are ours, and so is its normalisation over pieces of other sentences of the batch.
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
from xlj.models import encoder, word_hmm_head
from xlj.models.dense import precision_of
from xlj.models.dropout import Rngs
from xlj.objectives.bitext import halves
from xlj.objectives.corruption import split
from xlj.objectives.flops import TRAINED, Operations, of_layers
from xlj.objectives.objective import Loss, Losses, LossSums, Objective, Params, Rows
from xlj.objectives.segments import segments, whole_examples

HEAD = "word_hmm_head"


class WordHMMInputs(NamedTuple):
    """Both sides of the pairs, and noise: pieces that translations are compared with."""

    first: Rows
    second: Rows
    noise: jax.Array
    """Tokens of the batch's first and second sides, int32 [rows, 2, noise], the same in all rows;
    PAD in unused places."""


class _Side(NamedTuple):
    """Vectors of a side of the pairs."""

    words: jax.Array  # the example of each token, 0 of specials: int32 [rows, tokens]
    queries: jax.Array  # float32 [rows, tokens, hidden]
    keys: jax.Array  # float32 [rows, tokens, hidden]
    noise: jax.Array  # keys of noise pieces of this side, float32 [noise, hidden]
    is_noise: jax.Array  # bool [noise]


class _Direction(NamedTuple):
    """The generation of one side from the other."""

    emission: hmm.Emission
    jumps: jax.Array  # logits, float32 [rows, jumps]
    posteriors: hmm.Posteriors
    normaliser: jax.Array  # sum over tokens of squared log normalisers, float32 [rows]


def objective(
    name: str, options: WordHMM, model: Model, corpus: Corpus
) -> Objective[WordHMMInputs, object]:
    """Returns the likelihood of both sentences, each given the other, relative to chance.

    Its `accuracy` is the share of tokens on whose link both directions agree. It indicates the
    quality of alignments without gold alignments.
    """
    normaliser = f"{name}_normaliser"

    def loss(params: Params, state: object, inputs: WordHMMInputs, rngs: Rngs) -> Losses:
        of_side = [None] * 2 if rngs is None else split(rngs)
        first, second = (
            _encode(params, model, options.layer, side, inputs.noise[0, i], of_side[i])
            for i, side in enumerate((inputs.first, inputs.second))
        )
        head = params[HEAD]
        forth = _generate(head, model, first, second)
        back = _generate(head, model, second, first)
        both = forth.posteriors.emission.source * back.posteriors.emission.source.swapaxes(1, 2)
        tokens = _count_tokens(inputs)
        likelihood = _em_likelihood(forth, both, second.words, options.agreement)
        likelihood += _em_likelihood(back, both.swapaxes(1, 2), first.words, options.agreement)
        return {
            name: LossSums(-likelihood, tokens, 2.0 * _count_agreed(both, forth, back)),
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
        count=lambda inputs: {name: _count_tokens(inputs), normaliser: _count_tokens(inputs)},
        loss=loss,
        flops=partial(_flops, model, options.layer),
        parts={HEAD: partial(word_hmm_head.init, model=model, longest_jump=hmm.LONGEST_JUMP)},
    )


def words_of(tokens: jax.Array) -> jax.Array:
    """Returns the example of each token of a side, 0 for specials: int32 [rows, length]."""
    check("words_of", tokens=("int [rows, length]", tokens))
    word = (tokens != BOS) & (tokens != EOS) & (tokens != PAD)
    return jnp.where(word, segments(tokens).segment, 0)


def _count_tokens(inputs: WordHMMInputs) -> jax.Array:
    """Counts the generated tokens, float32 [rows]."""
    first, second = (words_of(side.tokens) > 0 for side in (inputs.first, inputs.second))
    return (first.sum(1) + second.sum(1)).astype(jnp.float32)


def _corrupt(rows: Rows, rngs: jax.Array) -> WordHMMInputs:
    """Returns both sides unchanged, and noise: tokens of all rows, drawn without replacement."""
    first, second = halves(rows)
    drawn = []
    for side, keys in zip((first, second), split(rngs), strict=True):
        order = jax.vmap(partial(jax.random.uniform, shape=side.tokens.shape[1:]))(keys)
        order = jnp.where(words_of(side.tokens) > 0, order, 2.0).reshape(-1)
        size = min(word_hmm_head.NOISE, len(order))
        places = jnp.argsort(order, stable=True)[:size]
        tokens = jnp.where(order[places] < 2, side.tokens.reshape(-1)[places], PAD)
        drawn.append(jnp.pad(tokens, (0, word_hmm_head.NOISE - size), constant_values=PAD))
    noise = jnp.broadcast_to(jnp.stack(drawn), (len(rows.tokens), 2, word_hmm_head.NOISE))
    return WordHMMInputs(first, second, noise.astype(jnp.int32))


def _encode(
    params: Params, model: Model, layer: int, side: Rows, noise: jax.Array, rngs: Rngs
) -> _Side:
    inputs = whole_examples(model, side.tokens, side.languages)
    hidden = encoder.apply(params, model, inputs, rngs, layers=layer)
    head, table = params[HEAD], params["embeddings"]["word"]
    return _Side(
        words_of(side.tokens),
        word_hmm_head.queries(head, model, hidden),
        word_hmm_head.keys(head, model, table, side.tokens),
        word_hmm_head.keys(head, model, table, noise),
        noise != PAD,
    )


def _generate(head: Params, model: Model, source: _Side, target: _Side) -> _Direction:
    """Computes the generation of the target from the source, with posteriors of the alignment."""
    # m source tokens and the null token generate n target tokens.
    queries = jnp.concatenate([source.queries, _null_query(head, source.queries)], axis=1)
    scores = word_hmm_head.products(queries, target.keys, model.dtype)  # [rows, m + 1, n]
    dtype = jnp.dtype(model.dtype)
    narrow = queries.astype(dtype), target.noise.astype(dtype)
    of_noise = jnp.einsum("rmh,nh->rmn", *narrow, precision=precision_of(dtype))
    of_noise = jnp.where(target.is_noise, of_noise.astype(jnp.float32), -1e30)
    count = jnp.maximum(target.is_noise.sum(), 1)
    mean = jax.nn.logsumexp(of_noise, axis=2) - jnp.log(count)  # [rows, m + 1]
    ratio = word_hmm_head.log_ratio(scores, mean[:, :, None])  # [rows, m + 1, n]
    emission = hmm.Emission(ratio[:, :-1], ratio[:, -1])
    jumps = jnp.broadcast_to(head["jump_bias"], (len(queries), *head["jump_bias"].shape))
    constants = jax.lax.stop_gradient((emission, jumps))
    posteriors = hmm.posteriors(*constants, source.words, target.words)
    is_word = source.words > 0
    normaliser = jnp.where(is_word, mean[:, :-1] ** 2, 0).sum(1)  # [rows]
    normaliser += mean[:, -1] ** 2 * is_word.any(1)
    return _Direction(emission, jumps, posteriors, normaliser)


def _em_likelihood(
    direction: _Direction, both: jax.Array, targets: jax.Array, agreement: float
) -> jax.Array:
    """Returns the likelihood of a direction, float32 [rows], with the gradient of EM.

    The derivative with respect to an emission is the expected alignment. A share `agreement` of it
    is the product of the probabilities of both directions (Liang, Taskar and Klein, 2006); the rest
    of a token's probability is then that of the null token.

    Args:
      both: products of the posteriors of both directions, float32 [rows, m, n].
      targets: the example of each generated token, int32 [rows, n].
    """
    emission, jumps, posteriors, _ = direction
    none = jnp.where(targets > 0, 1.0 - both.sum(1), 0.0)
    source = (1.0 - agreement) * posteriors.emission.source + agreement * both
    null = (1.0 - agreement) * posteriors.emission.null + agreement * none
    expected = (
        (source * emission.source).sum((1, 2))
        + (null * emission.null).sum(1)
        + (posteriors.jumps * jumps).sum(1)
    )
    return posteriors.log_likelihood + expected - jax.lax.stop_gradient(expected)


def _null_query(head: Params, queries: jax.Array) -> jax.Array:
    """Returns the query of the null token, [rows, 1, hidden]."""
    return jnp.broadcast_to(head["null_bias"], (len(queries), 1, queries.shape[2]))


def _count_agreed(both: jax.Array, forth: _Direction, back: _Direction) -> jax.Array:
    """Counts the links that are most likely for both tokens in both directions, float32 [rows]."""
    first, second = (direction.posteriors.emission.source for direction in (forth, back))
    first = first >= first.max(1, keepdims=True)
    second = second >= second.max(1, keepdims=True)
    return (first & second.swapaxes(1, 2) & (both > 0)).sum((1, 2)).astype(jnp.float32)


def _flops(model: Model, layer: int, rows: int, length: int) -> Operations:
    """Counts the operations of a step: encoder, products and the forward-backward algorithm."""
    side = length // 2
    encoding = 2 * TRAINED * of_layers(model, layer, rows, side)
    products = 2.0 * rows * side * model.hidden * (side + word_hmm_head.NOISE + 2 * model.hidden)
    moves = 3 * 2.0 * rows * side**3
    return encoding + Operations(other=2 * (TRAINED * products + moves))
