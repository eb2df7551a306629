"""Vectors of the examples of rows: where examples start, and means of their hidden vectors.

Results have a fixed number of slots per row, one for each example; unused slots come last.
"""

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import check
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models.segments import segments


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


def average_examples(hidden: jax.Array, tokens: jax.Array, max_examples: int) -> jax.Array:
    """Computes the mean vector of each example's tokens, without `<s>`, `</s>` and padding.

    Args:
      hidden: float [rows, length, hidden].
      tokens: int [rows, length].
      max_examples: number of slots per row, at least the number of examples.

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
        return average_rows(hidden, jnp.where(segment == number, tokens, PAD))

    return jax.vmap(of_example, out_axes=1)(jnp.arange(1, max_examples + 1))


def average_rows(hidden: jax.Array, tokens: jax.Array) -> jax.Array:
    """Computes the mean vector of each row's tokens, without `<s>`, `</s>` and padding.

    Args:
      hidden: float [rows, length, hidden].
      tokens: int [rows, length].

    Returns:
      [rows, hidden], of the dtype of `hidden`; zeros for rows without text.
    """
    check(
        "average_rows",
        hidden=("float [rows, length, hidden]", hidden),
        tokens=("int [rows, length]", tokens),
    )
    is_text = (tokens != BOS) & (tokens != EOS) & (tokens != PAD)
    text = is_text.astype(hidden.dtype)[..., None]
    return (hidden * text).sum(1) / jnp.maximum(text.sum(1), 1)
