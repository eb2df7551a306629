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
    """Both sides of each pair, and the sentence of the batch that is nearest to the other side
    without being its translation."""

    first: Rows
    second: Rows
    not_first: Rows
    not_second: Rows
    found: jax.Array
    """1 where the row is a pair and the batch has another, float32 [rows]."""


def objective(name: str, kind: str, options: Retrieval, model: Model, corpus: Corpus) -> Objective:
    """ERNIE-M's fine-tuning for retrieval (section 4.2): the hardest negative of the batch in each
    direction (Faghri et al., 2018), binary cross-entropy of scaled cosines (the scale is ours).

    Negatives are found with the current parameters over all rows of the step, and then encoded
    again with gradient, so that accumulation and sharding change nothing.
    """
    layer = options.layer or encoder.middle_layer(model.layers)

    def vectors(params: Params, rows: Rows, keys: jax.Array | None) -> jax.Array:
        inputs = whole_examples(model, rows.tokens, rows.languages)
        hidden = encoder.apply(params, model, inputs, keys, layers=layer)
        mean = average(hidden, rows.tokens)
        return mean / jnp.maximum(jnp.linalg.norm(mean, axis=1, keepdims=True), 1e-6)

    def corrupt(rows: Rows, keys: jax.Array) -> Compared:
        first, second = halves(rows)
        return Compared(first, second, first, second, jnp.zeros(len(first.tokens)))

    def label(params: Params, state: object, inputs: Compared, each_part: EachPart) -> Compared:
        first, second = (
            each_part(lambda rows: vectors(params, rows, None), side)
            for side in (inputs.first, inputs.second)
        )
        different = _different(inputs.first) & _different(inputs.second)
        similarity = jnp.matmul(first, second.T, precision="highest")
        similarity = jnp.where(different, similarity, -jnp.inf)
        hardest = similarity.argmax(1), similarity.argmax(0)
        pair = different.any(1) & (inputs.first.tokens[:, 0] != PAD)
        return inputs._replace(
            not_second=jax.tree.map(lambda leaf: leaf[hardest[0]], inputs.second),
            not_first=jax.tree.map(lambda leaf: leaf[hardest[1]], inputs.first),
            found=pair.astype(jnp.float32),
        )

    def loss(
        params: Params, state: object, inputs: Compared, keys: jax.Array | None
    ) -> dict[str, Tally]:
        sides = (inputs.first, inputs.second, inputs.not_first, inputs.not_second)
        of_side = [None] * 4 if keys is None else _four(keys)
        first, second, not_first, not_second = (
            vectors(params, rows, own) for rows, own in zip(sides, of_side, strict=True)
        )

        def logits(one: jax.Array, other: jax.Array) -> jax.Array:
            return options.scale * (one * other).sum(1)

        right = logits(first, second)
        wrong = logits(first, not_second), logits(not_first, second)
        losses = 2 * jax.nn.softplus(-right) + sum(map(jax.nn.softplus, wrong))
        best = (right > wrong[0]) & (right > wrong[1])
        return {
            name: Tally(sum=losses * inputs.found, count=inputs.found, correct=best * inputs.found)
        }

    def flops(rows: int, length: int) -> float:
        return (2 + 4 * TRAINED) * of_layers(model, layer, rows, length // 2)

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


def _four(keys: jax.Array) -> list[jax.Array]:
    return list(jax.vmap(lambda key: jax.random.split(key, 4), out_axes=1)(keys))
