"""Similarities of token vectors, and a prior on the diagonal that multiplies them."""

import jax
import jax.numpy as jnp

from xlj.alignment_math.sinkhorn import same_example
from xlj.contracts.arrays import check


def dot_products(source: jax.Array, target: jax.Array) -> jax.Array:
    """Computes the similarities of XLM-Align (Eq. 1).

    Float32 vectors are multiplied in full float32 on every platform.

    Args:
      source, target: vectors of tokens, float [..., m, hidden] and [..., n, hidden].

    Returns:
      [..., m, n], of the dtype of the vectors.
    """
    check(
        "dot_products",
        source=("float [..., m, hidden]", source),
        target=("float [..., n, hidden]", target),
    )
    return jnp.einsum("...mh,...nh->...mn", source, target, precision=jax.lax.Precision.HIGHEST)


def shifted_cosines(source: jax.Array, target: jax.Array) -> jax.Array:
    """Computes (cosine + 1) / 2, the similarities of SimAlign, between 0 and 1.

    Args:
      source, target: vectors of tokens, float [..., m, hidden] and [..., n, hidden].

    Returns:
      [..., m, n], of the dtype of the vectors.
    """
    check(
        "shifted_cosines",
        source=("float [..., m, hidden]", source),
        target=("float [..., n, hidden]", target),
    )
    return (1 + dot_products(_unit(source), _unit(target))) / 2


def diagonal(source_ids: jax.Array, target_ids: jax.Array, strength: float) -> jax.Array:
    """Computes a prior on the diagonal: exp(-strength |i / m - j / n|).

    An example has m source tokens and n target tokens; i and j count them from 1. This is the prior
    of fast_align before normalisation (Dyer, Chahuneau and Smith, 2013, section 2, where `strength`
    is lambda).

    Args:
      source_ids, target_ids: the number of each token's example, from 1, int32 [..., m] and
        [..., n]; 0 for tokens to ignore.
      strength: at least 0.

    Returns:
      float32 [..., m, n]; 0 between examples.
    """
    check(
        "diagonal",
        source_ids=("int32 [..., m]", source_ids),
        target_ids=("int32 [..., n]", target_ids),
    )
    source, target = _progress(source_ids), _progress(target_ids)
    distance = jnp.abs(source[..., :, None] - target[..., None, :])
    return jnp.where(same_example(source_ids, target_ids), jnp.exp(-strength * distance), 0)


def _progress(ids: jax.Array) -> jax.Array:
    """Computes i / m for token i, counted from 1, of an example of m tokens.

    Args:
      ids: the number of each token's example, int32 [..., tokens].

    Returns:
      float32 [..., tokens].
    """
    same = same_example(ids, ids)
    place = jnp.tril(same).sum(-1, dtype=jnp.float32)
    return place / jnp.maximum(same.sum(-1, dtype=jnp.float32), 1)


def _unit(vectors: jax.Array) -> jax.Array:
    """Scales vectors [..., hidden] to length 1; zeros stay zeros."""
    return vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
