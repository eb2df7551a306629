"""Losses that rank the positive of a text above the negatives of the batch, computed in blocks.

A device ranks for its own texts (anchors) against the candidates of all devices. It computes the
similarities of a block of anchors at a time, also in the backward pass, so memory grows linearly
with the number of texts.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import check
from xlj.models.lowering import is_counting
from xlj.objectives.contrast.head import normalise

NEVER = -1e9
"""Similarity of texts that are not negatives. It is finite: if a text has no negative at all, the
gradient of the logsumexp of -inf would be NaN."""

BLOCK = 1 << 24
"""Maximum number of similarities in a block, 64 MiB in float32."""


class Anchors(NamedTuple):
    """Texts for which candidates are ranked."""

    vectors: jax.Array
    """Unit vectors, float32 [anchors, hidden]."""
    logits: jax.Array
    """The logit of each anchor's positive, with each number of dimensions of `Rule.sizes`, float32
    [anchors, sizes]."""
    limits: jax.Array
    """The cosine above which the guard drops candidates of the anchor, float32 [anchors]."""
    sentences: jax.Array
    """Hashes of the texts of the anchor's example, uint32 [anchors, 2]."""
    is_real: jax.Array
    """False for slots without an example, bool [anchors]."""


class Candidates(NamedTuple):
    """Texts that are ranked."""

    vectors: jax.Array
    """Unit vectors, float32 [candidates, hidden]."""
    sentences: jax.Array
    """Hashes of the texts that make the candidate no negative of an anchor with one of them, uint32
    [candidates, 2]."""
    is_real: jax.Array
    """False for slots without a text, bool [candidates]."""


class Ranks(NamedTuple):
    """Results for each anchor, float32 [anchors]; zeros for anchors without a negative."""

    losses: jax.Array
    correct: jax.Array
    """1 if the positive is more similar than every negative, with those that the guard drops."""
    has_negative: jax.Array
    shared: jax.Array
    """The number of candidates that are no negatives, since they share a text with the anchor's
    example; the texts of the example itself count too."""
    guarded: jax.Array
    """The number of candidates that the guard dropped."""


class Rule(NamedTuple):
    """How candidates are ranked.

    Attributes:
      hardest: the loss of the most similar negative, instead of the softmax over all.
      scale: factor of cosines.
      margin: number that is subtracted from the cosine of the positive.
      guard: a candidate whose cosine exceeds the positive's cosine minus this number is no
        negative; infinite for no guard.
      sizes: the weight of the loss of the first n dimensions, by n. The first entry is the number
        of all dimensions, which the guard and `Ranks.correct` use.
    """

    hardest: bool
    scale: float
    margin: float
    guard: float
    sizes: Mapping[int, float]

    def of_positives(self, queries: jax.Array, positives: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Computes `Anchors.logits` and `Anchors.limits` of pairs.

        Args:
          queries, positives: unit vectors, float32 [pairs, hidden].
        """
        cosines = [
            (truncate(queries, size) * truncate(positives, size)).sum(1) for size in self.sizes
        ]
        logits = [self.scale * (cosine - self.margin) for cosine in cosines]
        return jnp.stack(logits, 1), jax.lax.stop_gradient(cosines[0]) - self.guard


def rank(anchors: Anchors, candidates: Candidates, rule: Rule) -> Ranks:
    """Ranks the positive of each anchor above the candidates that are negatives.

    With `softmax`, the loss of an anchor is -log softmax of its positive among the positive and all
    negatives (NT-Xent, Chen et al., 2020, Eq. 1). With `hardest`, it is the binary cross-entropy of
    the positive and of the most similar negative (Faghri et al., 2018). A margin makes the first
    loss that of LaBSE (Feng et al., 2022, Eq. 2). Losses of fewer dimensions are Matryoshka losses
    (Kusupati et al., 2022).
    """
    check(
        "rank",
        anchors=("float32 [anchors, hidden]", anchors.vectors),
        logits=("float32 [anchors, sizes]", anchors.logits),
        limits=("float32 [anchors]", anchors.limits),
        of_anchors=("uint32 [anchors, 2]", anchors.sentences),
        is_anchor=("bool [anchors]", anchors.is_real),
        candidates=("float32 [candidates, hidden]", candidates.vectors),
        of_candidates=("uint32 [candidates, 2]", candidates.sentences),
        is_candidate=("bool [candidates]", candidates.is_real),
    )
    columns = [truncate(candidates.vectors, size) for size in rule.sizes]

    def of_block(block: Anchors) -> Ranks:
        return _rank_block(block, candidates, columns, rule)

    count = len(anchors.vectors)
    size = _block_size(count, len(candidates.vectors))
    if size >= count or is_counting():
        return of_block(anchors)
    blocks = -(-count // size)

    def split(x: jax.Array) -> jax.Array:
        padding = [(0, blocks * size - count), *[(0, 0)] * (x.ndim - 1)]
        return jnp.pad(x, padding).reshape(blocks, size, *x.shape[1:])

    ranks = jax.lax.map(jax.checkpoint(of_block), jax.tree.map(split, anchors))
    joined: Ranks = jax.tree.map(lambda x: x.reshape(-1)[:count], ranks)
    return joined


def negative_log_softmax(right: jax.Array, others: jax.Array) -> jax.Array:
    """Returns -log softmax of one logit among this logit and others.

    Args:
      right: the logits, float32 [...].
      others: the other logits, float32 [..., n]; `NEVER` for slots without a logit.
    """
    check(
        "negative_log_softmax",
        right=("float32 [...]", right),
        others=("float32 [..., others]", others),
    )
    return jax.nn.softplus(jax.nn.logsumexp(others, axis=-1) - right)


def _block_size(anchors: int, candidates: int) -> int:
    """Returns the number of anchors of a block: all, or a power of two."""
    most = max(8, 1 << int(math.log2(max(1, BLOCK // candidates))))
    return min(anchors, most)


def truncate(vectors: jax.Array, size: int) -> jax.Array:
    """Returns unit vectors of the first `size` dimensions of unit vectors, float [..., hidden]."""
    check("truncate", vectors=("float [..., hidden]", vectors))
    return vectors if size == vectors.shape[-1] else normalise(vectors[..., :size])


def _rank_block(
    anchors: Anchors, candidates: Candidates, columns: list[jax.Array], rule: Rule
) -> Ranks:
    """Implements `rank` for a block.

    Args:
      columns: the vectors of the candidates with each number of dimensions of `rule.sizes`.
    """
    shares = [
        anchors.sentences[:, i, None] == candidates.sentences[:, j]
        for i in range(2)
        for j in range(2)
    ]
    is_pair = candidates.is_real & anchors.is_real[:, None]
    is_shared = jnp.stack(shares).any(0) & is_pair  # [anchors, candidates], as the arrays below
    is_negative = is_pair & ~is_shared
    guarded = jnp.zeros_like(is_negative)
    losses = correct = jnp.zeros(len(anchors.vectors))
    for number, (size, weight) in enumerate(rule.sizes.items()):
        own, right = truncate(anchors.vectors, size), anchors.logits[:, number]
        similarity = jnp.matmul(own, columns[number].T, precision="highest")
        if not number:
            others = jnp.where(is_negative, rule.scale * similarity, NEVER)
            correct = (right > others.max(1)).astype(jnp.float32)
        if not number and rule.guard < math.inf:
            guarded = is_negative & (similarity > anchors.limits[:, None])
            is_negative &= ~guarded
        similarity = jnp.where(is_negative, rule.scale * similarity, NEVER)
        if rule.hardest:
            of_size = jax.nn.softplus(-right) + jax.nn.softplus(similarity.max(1))
        else:
            of_size = negative_log_softmax(right, similarity)
        losses += weight * of_size
    has_negative = is_negative.any(1).astype(jnp.float32)
    counts = (x.sum(1).astype(jnp.float32) for x in (is_shared, guarded))
    return Ranks(losses * has_negative, correct * has_negative, has_negative, *counts)
