"""The layout of rows, derived from their tokens: examples, sides and positions, and the mean
vectors of examples.

Results have a fixed number of slots per row, one for each example; unused slots come last.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check, check_ids
from xlj.data.rows.kinds.bitext import Bitext
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder

Rows = Mapping[str, jax.Array]
"""Rows of one objective: the array [rows, ...] of each field, by name.

The kind of rows defines the fields (`data.rows.row_kind.RowKind`). Most kinds have `tokens`: token
ids, int32 or the integer type on disk, [rows, length]. All have `languages`: the language of each
side of a row, as an index into `Corpus.languages`, int32 [rows, sides]. Rows of monolingual text
have two equal indices."""


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


def sides(tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the numbers of the tokens' examples, separately for first and second sentences.

    Args:
      tokens: int [rows, length].

    Returns:
      Two arrays int32 [rows, length]. The first array has the numbers of the examples at tokens of
      first sentences, and 0 at specials and second sentences. The second array has the numbers at
      tokens of second sentences, and 0 elsewhere.
    """
    check("sides", tokens=("int [rows, length]", tokens))
    layout = segments(tokens)
    word = (tokens != BOS) & (tokens != EOS) & (tokens != PAD)
    first, second = (jnp.where(word & (layout.side == i), layout.segment, 0) for i in (0, 1))
    return first, second


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


def count_examples(tokens: jax.Array) -> jax.Array:
    """Counts the examples of each row: int32 [rows, length] -> int32 [rows]."""
    check("count_examples", tokens=("int [rows, length]", tokens))
    return (tokens == BOS).sum(1)


def is_example(tokens: jax.Array, max_examples: int) -> jax.Array:
    """Returns which slots have an example.

    Args:
      tokens: int [rows, length].
      max_examples: number of slots per row, at least the number of examples.

    Returns:
      bool [rows, max_examples].
    """
    check("is_example", tokens=("int [rows, length]", tokens))
    return jnp.arange(max_examples) < count_examples(tokens)[:, None]


def find_starts(tokens: jax.Array, max_examples: int, none: int = 0) -> jax.Array:
    """Returns the index in the row at which each example begins.

    Args:
      tokens: int [rows, length].
      max_examples: number of slots per row, at least the number of examples.
      none: the value of slots without an example.

    Returns:
      int32 [rows, max_examples].
    """
    check("find_starts", tokens=("int [rows, length]", tokens))

    def of_row(row: jax.Array) -> jax.Array:
        return jnp.nonzero(row == BOS, size=max_examples, fill_value=none)[0].astype(jnp.int32)

    return jax.vmap(of_row)(tokens)


def average_examples(
    hidden: jax.Array, tokens: jax.Array, max_examples: int, specials: bool = False
) -> jax.Array:
    """Computes the mean vector of each example's tokens, without padding.

    Args:
      hidden: float [rows, length, hidden].
      tokens: int [rows, length].
      max_examples: number of slots per row, at least the number of examples.
      specials: whether the mean includes `<s>` and `</s>`.

    Returns:
      [rows, max_examples, hidden], of the dtype of `hidden`; zeros in slots without an example.
    """
    check(
        "average_examples",
        hidden=("float [rows, length, hidden]", hidden),
        tokens=("int [rows, length]", tokens),
    )
    segment = segments(tokens).segment

    def of_example(number: jax.Array) -> jax.Array:
        return average_rows(hidden, jnp.where(segment == number, tokens, PAD), specials)

    return jax.vmap(of_example, out_axes=1)(jnp.arange(1, max_examples + 1))


def average_rows(hidden: jax.Array, tokens: jax.Array, specials: bool = False) -> jax.Array:
    """Computes the mean vector of each row's tokens, without padding.

    Args:
      hidden: float [rows, length, hidden].
      tokens: int [rows, length].
      specials: whether the mean includes `<s>` and `</s>`.

    Returns:
      [rows, hidden], of the dtype of `hidden`; zeros for rows without text.
    """
    check(
        "average_rows",
        hidden=("float [rows, length, hidden]", hidden),
        tokens=("int [rows, length]", tokens),
    )
    is_text = tokens != PAD
    if not specials:
        is_text &= (tokens != BOS) & (tokens != EOS)
    text = is_text.astype(hidden.dtype)[..., None]
    return (hidden * text).sum(1) / jnp.maximum(text.sum(1), 1)


def split_sides(rows: Rows) -> tuple[Rows, Rows]:
    """Returns the first and the second sentences as rows, with tokens int32 [rows, length / 2]."""
    check(
        "split_sides",
        first=("int [rows, length]", rows["first"]),
        second=("int [rows, length]", rows["second"]),
        languages=("int [rows, 2]", rows["languages"]),
    )
    first, second = Bitext().layout(rows)
    return _with_int32(first), _with_int32(second)


def _with_int32(rows: Rows) -> Rows:
    return {**rows, "tokens": rows["tokens"].astype(jnp.int32)}
