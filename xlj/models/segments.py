"""The layout of rows, derived from their tokens: examples, sides and positions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check, check_ids
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder


class Segments(NamedTuple):
    """The layout of rows; each array is int32 [rows, length]."""

    segment: jax.Array
    """The number of the token's example in the row: 1, 2, ...; 0 for padding."""
    side: jax.Array
    """0 for tokens of `<s> A </s>`, 1 for tokens of `B </s>`; 0 for padding."""
    position: jax.Array
    """Zero-based position of the token in its example, across both sentences; 0 for padding."""


def segments(tokens: jax.Array) -> Segments:
    """Returns the layout of rows.

    Args:
      tokens: token ids, int [rows, length].
    """
    check("segments", tokens=("int [rows, length]", tokens))
    real = (tokens != PAD).astype(jnp.int32)
    starts = tokens == BOS
    indices = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    start = jax.lax.cummax(jnp.where(starts, indices, 0), axis=1)
    ends = (tokens == EOS).astype(jnp.int32)
    ends_before = jnp.cumsum(ends, axis=1) - ends
    side = ends_before - jnp.take_along_axis(ends_before, start, axis=1)
    return Segments(
        segment=jnp.cumsum(starts.astype(jnp.int32), axis=1) * real,
        side=side * real,
        position=(indices - start) * real,
    )


def languages_of(layout: Segments, languages: jax.Array) -> jax.Array:
    """Returns the language of each token, int32 [rows, length]; -1 for padding.

    Args:
      languages: the language of each side of a row, int [rows, 2].
    """
    check_ids("languages_of", layout, languages=("int [rows, 2]", languages))
    sides = jnp.minimum(layout.side, languages.shape[1] - 1)
    return jnp.where(layout.segment > 0, jnp.take_along_axis(languages, sides, axis=1), -1)


def whole_examples(model: Model, tokens: jax.Array, languages: jax.Array) -> encoder.Inputs:
    """Returns inputs of the encoder in which a token sees exactly the tokens of its example.

    Args:
      tokens: int32 [rows, length].
      languages: the language of each side of a row, int32 [rows, 2]; only used with
        `model.language_embeddings=all`.
    """
    check(
        "whole_examples",
        tokens=("int [rows, length]", tokens),
        languages=("int [rows, 2]", languages),
    )
    layout = segments(tokens)
    everywhere = model.language_embeddings == "all"
    return encoder.Inputs(
        tokens,
        layout.position,
        layout.segment,
        layout.segment,
        languages_of(layout, languages) if everywhere else None,
        # An example with two separators, `<s> A </s> </s> B </s>`, has sides 0, 1 and 2.
        jnp.minimum(layout.side, 1),
    )


def sees_nothing(inputs: encoder.Inputs, window: int) -> jax.Array:
    """Returns which tokens see no key in local layers, bool [rows, length].

    The output of attention in local layers is zero for these tokens. Only full layers give them
    information about other tokens.

    Args:
      window: the largest distance in the row at which a token sees a key, on each side.
    """
    check_ids("sees_nothing", inputs)
    queries, length = inputs.query_segment_ids, inputs.tokens.shape[1]
    fill = (0, 0), (window, window)
    keys = jnp.pad(inputs.key_segment_ids, fill)
    is_key = jnp.pad(jnp.ones_like(queries, bool), fill)

    def add_shift(shift: jax.Array, sees: jax.Array) -> jax.Array:
        ids, in_row = (jax.lax.dynamic_slice_in_dim(x, shift, length, 1) for x in (keys, is_key))
        return sees | (in_row & (ids == queries))

    return ~jax.lax.fori_loop(0, 2 * window + 1, add_shift, jnp.zeros_like(queries, bool))
