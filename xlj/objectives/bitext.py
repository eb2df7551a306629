"""Rows of the kind `bitext`: one pair a row, each sentence alone in its half."""

import jax
import jax.numpy as jnp

from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.objectives.objective import Rows


def halves(rows: Rows) -> tuple[Rows, Rows]:
    """The two sides of each pair, tokens int32 [rows, length / 2], their language twice."""
    tokens = rows.tokens.astype(jnp.int32)
    middle = tokens.shape[1] // 2
    first, second = (jnp.repeat(rows.languages[:, i : i + 1], 2, axis=1) for i in (0, 1))
    return Rows(tokens[:, :middle], first), Rows(tokens[:, middle:], second)


def average(hidden: jax.Array, tokens: jax.Array) -> jax.Array:
    """Mean vectors of each row's own tokens, without `<s>` and `</s>`: [rows, length, hidden] ->
    [rows, hidden]."""
    own = (tokens != BOS) & (tokens != EOS) & (tokens != PAD)
    text = own.astype(hidden.dtype)[..., None]
    return (hidden * text).sum(1) / jnp.maximum(text.sum(1), 1)
