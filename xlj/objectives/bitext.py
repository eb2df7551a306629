"""Rows of the kind `bitext`: first sentences in one half, second sentences in the other half.

Each sentence is an example of its own. The pairs have the same order in both halves.
"""

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import check
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.objectives.objective import Rows
from xlj.objectives.segments import segments


def halves(rows: Rows) -> tuple[Rows, Rows]:
    """Returns the two sides of the pairs as rows: tokens int32 [rows, length / 2]."""
    rows.check("halves")
    tokens = rows.tokens.astype(jnp.int32)
    middle = tokens.shape[1] // 2
    first, second = (jnp.repeat(rows.languages[:, i : i + 1], 2, axis=1) for i in (0, 1))
    return Rows(tokens[:, :middle], first), Rows(tokens[:, middle:], second)


def count(tokens: jax.Array) -> jax.Array:
    """Counts the examples of each row: int32 [rows, length] -> int32 [rows]."""
    check("count", tokens=("int [rows, length]", tokens))
    return (tokens == BOS).sum(1)


def is_example(tokens: jax.Array, most: int) -> jax.Array:
    """Returns which of `most` slots have an example: int32 [rows, length] -> bool [rows, most]."""
    check("is_example", tokens=("int [rows, length]", tokens))
    return jnp.arange(most) < count(tokens)[:, None]


def starts(tokens: jax.Array, most: int, none: int = 0) -> jax.Array:
    """Returns where each of `most` examples begins: int32 [rows, length] -> int32 [rows, most].

    Slots without an example have the value `none`.
    """
    check("starts", tokens=("int [rows, length]", tokens))

    def of_row(row: jax.Array) -> jax.Array:
        return jnp.nonzero(row == BOS, size=most, fill_value=none)[0].astype(jnp.int32)

    return jax.vmap(of_row)(tokens)


def averages(hidden: jax.Array, tokens: jax.Array, most: int) -> jax.Array:
    """Computes the mean vector of each of `most` examples, as `average` does.

    Maps [rows, length, hidden] -> [rows, most, hidden].
    """
    check(
        "averages",
        hidden=("float [rows, length, hidden]", hidden),
        tokens=("int [rows, length]", tokens),
    )
    segment = segments(tokens).segment

    def of_example(number: jax.Array) -> jax.Array:
        return average(hidden, jnp.where(segment == number, tokens, PAD))

    return jax.vmap(of_example, out_axes=1)(jnp.arange(1, most + 1))


def average(hidden: jax.Array, tokens: jax.Array) -> jax.Array:
    """Computes the mean vector of each row's tokens, without `<s>`, `</s>` and padding.

    Maps [rows, length, hidden] -> [rows, hidden].
    """
    check(
        "average",
        hidden=("float [rows, length, hidden]", hidden),
        tokens=("int [rows, length]", tokens),
    )
    own = (tokens != BOS) & (tokens != EOS) & (tokens != PAD)
    text = own.astype(hidden.dtype)[..., None]
    return (hidden * text).sum(1) / jnp.maximum(text.sum(1), 1)
