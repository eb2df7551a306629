"""The head of word links: for each piece of a pair, a distribution over the pieces of the other
sentence and "no counterpart", in both directions from one forward pass (ours).

Pieces are compared by the cosine of their mapped vectors, times a learnt scale. Each piece is also
compared with a learnt vector, the score of "no counterpart". A softmax over the pieces of the other
sentence and "no counterpart" gives the distribution, as in awesome-align (Dou and Neubig, 2021),
whose softmax has no such choice.

The head reads the layer at two thirds of the depth, where vectors of translations are most similar
(`encoder.middle_layer`). So the layers above it are neither computed nor trained.

The field `links` of a row has a code for each pair of tokens, of two bits (`unpack`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.alignment_math.sinkhorn import same_example
from xlj.config import Model
from xlj.contracts.arrays import Specified, check
from xlj.data.labelled.links import EXCLUDED, HALF, LINK
from xlj.models.dense import matmul
from xlj.models.dropout import Rngs
from xlj.models.segments import sides
from xlj.objectives.objective import Rows
from xlj.objectives.word_hmm.head import products
from xlj.sharding.trees import Params

HEAD = "word_links_head"
"""The name of the head's parameters."""
SCALE = 20.0
"""The initial factor of cosines. With multilingual-e5-small, cosines of linked pieces are at least
0.3 higher than those of most other pieces, so the softmax is sharp from the start."""
NULL_COSINE = 0.6
"""The initial cosine with "no counterpart". With multilingual-e5-small, it lies between the cosines
of linked pieces and of most other pieces."""
_MASKED = -1e30


def init(rng: jax.Array, model: Model, labels: int = 0) -> Params:
    """Returns new parameters of the head, all float32.

    `map/kernel` [hidden, hidden] starts as the identity, and `map/bias` [hidden] at 0, so that
    links of the untrained head follow the similarities of the pretrained vectors. `null/bias`
    [hidden] starts at 0. `scale` [1] is the logarithm of the factor of cosines, and `null/scale`
    [1] the constant part of the cosine with "no counterpart".
    """
    check("init", rng=("key []", rng))
    return {
        "map": {"kernel": jnp.eye(model.hidden), "bias": jnp.zeros(model.hidden)},
        "null": {"bias": jnp.zeros(model.hidden), "scale": jnp.full(1, NULL_COSINE)},
        "scale": jnp.log(jnp.full(1, SCALE)),
    }


def _unit_vectors(head: Params, model: Model, hidden: jax.Array) -> jax.Array:
    """Maps vectors of tokens, float [..., n, hidden], to length 1: float32 [..., n, hidden]."""
    mapped = matmul(hidden, head["map"]["kernel"], jnp.dtype(model.dtype))
    mapped = mapped.astype(jnp.float32) + head["map"]["bias"]
    squares = (mapped * mapped).sum(-1, keepdims=True)
    return mapped * jax.lax.rsqrt(jnp.maximum(squares, 1e-12))


def _null_scores(head: Params, vectors: jax.Array) -> jax.Array:
    """Computes the scores of "no counterpart", float32 [..., n], from `_unit_vectors`."""
    cosines = vectors @ head["null"]["bias"] + head["null"]["scale"]
    return jnp.exp(head["scale"]) * cosines


def _pair_scores(head: Params, source: jax.Array, target: jax.Array) -> jax.Array:
    """Computes the scores of pairs of tokens, float32 [..., m, n], from `_unit_vectors`."""
    return jnp.exp(head["scale"]) * products(source, target, "float32")


def logits(
    head: Params, model: Model, hidden: jax.Array, tokens: jax.Array, rngs: Rngs = None
) -> jax.Array:
    """Computes the logits of each token for all tokens of its row, float32 [rows, length, length].

    The diagonal has the logits of "no counterpart". Logits of tokens that are not pieces of the
    other sentence are -1e30.

    Args:
      hidden: vectors of the tokens, float [rows, length, hidden].
      tokens: int [rows, length], one pair `<s> A </s> B </s>` per row.
      rngs: not used: the head has no dropout.
    """
    check(
        "word_links.logits",
        hidden=(f"float [rows, length, {model.hidden}]", hidden),
        tokens=("int [rows, length]", tokens),
        rngs=("key [rows]", rngs),
    )
    first, second = sides(tokens)
    vectors = _unit_vectors(head, model, hidden)
    scores = _pair_scores(head, vectors, vectors)
    allowed = same_example(first, second) | same_example(second, first)
    diagonal = jnp.eye(tokens.shape[1], dtype=bool)
    null = _null_scores(head, vectors)[..., None]
    return jnp.where(diagonal, null, jnp.where(allowed, scores, _MASKED))


def unpack(links: jax.Array, length: int) -> jax.Array:
    """Returns the code of each pair of tokens, int32 [rows, length, length]: 0 without a link, or
    one of the codes of `data.labelled.links`.

    Args:
      links: the field of the rows, uint8 [rows, 2, length, bytes].
    """
    check("unpack", links=(f"uint8 [rows, 2, {length}, {-(-length // 8)}]", links))
    bits = jnp.unpackbits(links, axis=-1, count=length).astype(jnp.int32)
    return bits[:, 0] + 2 * bits[:, 1]


def _check_rows(function: str, tokens: jax.Array, links: jax.Array, **more: Specified) -> None:
    of_links = f"uint8 [rows, 2, length, {-(-tokens.shape[-1] // 8)}]"
    check(function, tokens=("int [rows, length]", tokens), links=(of_links, links), **more)


def weights(rows: Rows) -> jax.Array:
    """Returns 1 for pieces whose counterparts are known, else 0, float32 [rows, length]."""
    tokens, links = rows["tokens"], rows["links"]
    _check_rows("weights", tokens, links)
    codes = unpack(links, tokens.shape[1])
    first, second = sides(tokens)
    unknown = jnp.diagonal(codes, axis1=1, axis2=2) == EXCLUDED
    return ((first + second > 0) & ~unknown).astype(jnp.float32)


def losses(logits: jax.Array, rows: Rows) -> tuple[jax.Array, jax.Array]:
    """Computes the cross-entropy of each piece against the distribution over its counterparts.

    The distribution is uniform over the pieces of the linked words; pieces of half links get half
    of the mass of other pieces. A piece with half links only has half of its mass at "no
    counterpart". A piece without links has all mass there. Excluded links are left out of the
    softmax.

    Args:
      logits: the result of `logits`, float32 [rows, length, length].
      rows: the rows, with the field `links`.

    Returns:
      The losses, and whether the most likely choice is a link (or "no counterpart" of a piece
      without links), both float32 or bool [rows, length].
    """
    tokens, links = rows["tokens"], rows["links"]
    _check_rows("losses", tokens, links, logits=("float32 [rows, length, length]", logits))
    length = logits.shape[1]
    codes = unpack(links, length)
    diagonal = jnp.eye(length, dtype=bool)
    linked = jnp.where(diagonal, 0.0, 1.0 * (codes == LINK) + 0.5 * (codes == HALF))
    total, highest = linked.sum(-1, keepdims=True), linked.max(-1, keepdims=True)
    target = linked / jnp.maximum(total, 1e-9) * jnp.where(highest == 0.5, 0.5, 1.0)
    target = jnp.where(diagonal, 1 - target.sum(-1, keepdims=True), target)
    known = jnp.where((codes == EXCLUDED) & ~diagonal, _MASKED, logits)
    log_probabilities = jax.nn.log_softmax(known)
    of_pieces = -jnp.where(target > 0, target * log_probabilities, 0).sum(-1)
    best = jnp.take_along_axis(target, known.argmax(-1)[..., None], -1)[..., 0]
    return of_pieces, best > 0


class WordProbabilities(NamedTuple):
    """Probabilities between words, repeated for each pair of their pieces.

    Attributes:
      links: float32 [layers, pairs, m, n], the mean of both directions' probabilities of a link.
      source_nulls, target_nulls: float32 [layers, pairs, m] and [layers, pairs, n], the probability
        that the word of a piece has no counterpart.
    """

    links: jax.Array
    source_nulls: jax.Array
    target_nulls: jax.Array


def word_probabilities(
    head: Params,
    model: Model,
    vectors: tuple[jax.Array, jax.Array],
    ids: tuple[jax.Array, jax.Array],
    words: tuple[jax.Array, jax.Array],
) -> WordProbabilities:
    """Computes the probabilities of links between words.

    The probability that a source word is linked to a target word sums the probabilities of the
    pieces of the target word, and is the mean over the pieces of the source word. So the
    probabilities of a word, with "no counterpart", sum to 1. The other direction is the same with
    both sides swapped.

    Args:
      vectors: the vectors of both sides, float [layers, pairs, m, hidden] and [layers, pairs, n,
        hidden].
      ids: the number of each piece's example, int32 [pairs, m] and [pairs, n] (`same_example`).
      words: the number of each piece's word, int32 [pairs, m] and [pairs, n].
    """
    check(
        "word_probabilities",
        source=(f"float [layers, pairs, m, {model.hidden}]", vectors[0]),
        target=(f"float [layers, pairs, n, {model.hidden}]", vectors[1]),
        source_ids=("int32 [pairs, m]", ids[0]),
        target_ids=("int32 [pairs, n]", ids[1]),
        source_words=("int32 [pairs, m]", words[0]),
        target_words=("int32 [pairs, n]", words[1]),
    )
    units = [_unit_vectors(head, model, side) for side in vectors]
    scores = jnp.where(same_example(*ids), _pair_scores(head, *units), _MASKED)
    same = [
        (same_example(of_side, of_side) & (word[..., :, None] == word[..., None, :])).astype(
            jnp.float32
        )
        for of_side, word in zip(ids, words, strict=True)
    ]  # [pairs, m, m] and [pairs, n, n]: whether two pieces belong to the same word
    means = [matrix / jnp.maximum(matrix.sum(-1, keepdims=True), 1) for matrix in same]

    def direction(scores: jax.Array, side: int) -> tuple[jax.Array, jax.Array]:
        null = _null_scores(head, units[side])[..., None]
        probabilities = jax.nn.softmax(jnp.concatenate([scores, null], -1))
        of_words = jnp.matmul(probabilities[..., :-1], same[1 - side], precision="highest")
        return (
            jnp.matmul(means[side], of_words, precision="highest"),
            jnp.matmul(means[side], probabilities[..., -1:], precision="highest")[..., 0],
        )

    forward, source_nulls = direction(scores, 0)
    backward, target_nulls = direction(scores.swapaxes(-1, -2), 1)
    links = jnp.where(same_example(*ids), (forward + backward.swapaxes(-1, -2)) / 2, 0)
    return WordProbabilities(links, source_nulls, target_nulls)
