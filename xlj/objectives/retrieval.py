"""Sentence retrieval: binary cross-entropy of translations and their hardest negatives."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model, Retrieval
from xlj.data.corpus import Corpus
from xlj.data.layout import PAD
from xlj.models import encoder
from xlj.objectives.bitext import average, halves
from xlj.objectives.flops import TRAINED, of_layers
from xlj.objectives.losses import Tally
from xlj.objectives.objective import EachPart, Objective, Params
from xlj.objectives.rows import Rows
from xlj.objectives.segments import whole_examples


class Compared(NamedTuple):
    """Both sides of each pair, and what the batch says of them: zeros until `label`."""

    first: Rows
    second: Rows
    not_first: jax.Array
    """The vector that is nearest to `second`'s without being its translation's, float32
    [rows, hidden]."""
    not_second: jax.Array
    pull_first: jax.Array
    """The gradient at `first`'s vector of the losses in which it is the negative, float32
    [rows, hidden]."""
    pull_second: jax.Array
    found: jax.Array
    """1 where the row is a pair and the batch has another, float32 [rows]."""


def objective(name: str, kind: str, options: Retrieval, model: Model, corpus: Corpus) -> Objective:
    """ERNIE-M's fine-tuning for retrieval (section 4.2): the hardest negative of the batch in each
    direction (Faghri et al., 2018), binary cross-entropy of scaled cosines (the scale is ours).

    Negatives may stand in another microbatch, so `label` encodes all rows of the step with the
    current parameters (without dropout, ours), and a negative learns through its own row: its
    gradient is known there, as in GradCache (Gao et al., 2021), and no sentence is encoded twice
    with gradient. Accumulation and sharding change nothing.
    """
    layer = options.layer or encoder.middle_layer(model.layers)

    def vectors(params: Params, rows: Rows, keys: jax.Array | None) -> jax.Array:
        inputs = whole_examples(model, rows.tokens, rows.languages)
        hidden = encoder.apply(params, model, inputs, keys, layers=layer)
        mean = average(hidden, rows.tokens)
        square = (mean * mean).sum(1, keepdims=True)
        return mean / jnp.sqrt(jnp.maximum(square, 1e-12))  # padding has a gradient too, of 0

    def logits(one: jax.Array, other: jax.Array) -> jax.Array:
        return options.scale * (one * other).sum(1)

    def corrupt(rows: Rows, keys: jax.Array) -> Compared:
        first, second = halves(rows)
        nothing = jnp.zeros((len(first.tokens), model.hidden))
        return Compared(first, second, nothing, nothing, nothing, nothing, nothing[:, 0])

    def label(params: Params, state: object, inputs: Compared, each_part: EachPart) -> Compared:
        first, second = (
            each_part(lambda rows: vectors(params, rows, None), side)
            for side in (inputs.first, inputs.second)
        )
        different = _different(inputs.first) & _different(inputs.second)
        similarity = jnp.matmul(first, second.T, precision="highest")
        similarity = jnp.where(different, similarity, -jnp.inf)
        pair = different.any(1) & (inputs.first.tokens[:, 0] != PAD)
        found = pair.astype(jnp.float32)

        def compared(
            vectors: jax.Array, others: jax.Array, hardest: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            """The hardest of `others` for each vector, and the gradient at `others`."""
            chosen = jax.nn.one_hot(hardest, len(others))  # as products: the same bits each time
            negatives = jnp.matmul(chosen, others, precision="highest")
            pulls = found * options.scale * jax.nn.sigmoid(logits(vectors, negatives))
            return negatives, jnp.matmul(chosen.T, pulls[:, None] * vectors, precision="highest")

        not_second, pull_second = compared(first, second, similarity.argmax(1))
        not_first, pull_first = compared(second, first, similarity.argmax(0))
        return inputs._replace(
            not_first=not_first,
            not_second=not_second,
            pull_first=pull_first,
            pull_second=pull_second,
            found=found,
        )

    def loss(
        params: Params, state: object, inputs: Compared, keys: jax.Array | None
    ) -> dict[str, Tally]:
        of_side = [None] * 2 if keys is None else jax.vmap(jax.random.split, out_axes=1)(keys)
        first, second = (
            vectors(params, rows, own)
            for rows, own in zip((inputs.first, inputs.second), of_side, strict=True)
        )
        right = logits(first, second)
        wrong = logits(first, inputs.not_second), logits(inputs.not_first, second)
        losses = 2 * jax.nn.softplus(-right) + sum(map(jax.nn.softplus, wrong))
        pulled = (inputs.pull_first * first + inputs.pull_second * second).sum(1)
        losses = losses * inputs.found + (pulled - jax.lax.stop_gradient(pulled))
        best = (right > wrong[0]) & (right > wrong[1])
        return {name: Tally(sum=losses, count=inputs.found, correct=best * inputs.found)}

    def flops(rows: int, length: int) -> float:
        return 2 * (1 + TRAINED) * of_layers(model, layer, rows, length // 2)

    return Objective(
        kind=kind,
        weights={name: options.weight},
        corrupt=corrupt,
        count=lambda inputs: {name: inputs.found},
        loss=loss,
        flops=flops,
        parts={},
        label=label,
    )


def _different(rows: Rows) -> jax.Array:
    """Which sentences of the batch differ, and are there, bool [rows, rows]."""
    place = jnp.arange(rows.tokens.shape[1], dtype=jnp.uint32)
    factors = place * jnp.uint32(2_654_435_761) + jnp.uint32(0x9E3779B1)
    mixed = (rows.tokens.astype(jnp.uint32) + 1) * factors
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x85EBCA6B)
    digest = mixed.sum(1, dtype=jnp.uint32)
    real = rows.tokens[:, 0] != PAD
    return (digest[:, None] != digest) & real & real[:, None]
