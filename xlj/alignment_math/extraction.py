"""Similarities of token vectors, and links between tokens from similarities or a transport plan
(XLM-Align equations 7 to 9).

Rules of the functions that return links:

- A similarity of 0 or less gives no link.
- Each example is treated separately, also if a row has several examples.
- Among equal values, the first index wins (not in `match`). Two values count as equal if their
  relative difference is at most `TIE`. For example, a transport plan has equal values for a
  sentence of one token. Without the tolerance, rounding errors, which depend on the shape of the
  batch, would choose among these values.

A prior on the diagonal multiplies the similarities.
"""

import jax
import jax.numpy as jnp
import numpy as np

from xlj.alignment_math.sinkhorn import Transport, check_pairs, same_example
from xlj.contracts.arrays import check

TIE = 1e-5
"""The largest relative difference at which two values count as equal (ours)."""


def argmax(similarity: jax.Array, source_ids: jax.Array, target_ids: jax.Array) -> jax.Array:
    """Links tokens that are most similar to each other (SimAlign's Argmax; XLM-Align Eq. 7, 8).

    Args:
      similarity: float [..., m, n].
      source_ids, target_ids: the number of each token's example, from 1, int32 [..., m] and
        [..., n]; 0 for tokens to ignore.

    Returns:
      The links, bool [..., m, n].
    """
    check_pairs("argmax", similarity, source_ids, target_ids)
    similarity = jnp.where(same_example(source_ids, target_ids), similarity, 0)
    return _best(similarity, -1) & _best(similarity, -2)


def union(similarity: jax.Array, source_ids: jax.Array, target_ids: jax.Array) -> jax.Array:
    """Links each token with its most similar token (XLM-Align Eq. 7 and Table 6, no filtering).

    Args:
      similarity: float [..., m, n].
      source_ids, target_ids: the number of each token's example, from 1, int32 [..., m] and
        [..., n]; 0 for tokens to ignore.

    Returns:
      The links, bool [..., m, n].
    """
    check_pairs("union", similarity, source_ids, target_ids)
    similarity = jnp.where(same_example(source_ids, target_ids), similarity, 0)
    return _best(similarity, -1) | _best(similarity, -2)


def itermax(
    similarity: jax.Array,
    source_ids: jax.Array,
    target_ids: jax.Array,
    alpha: float = 0.9,
    iterations: int = 2,
) -> jax.Array:
    """Applies `argmax`, then further rounds for unlinked tokens (SimAlign; XLM-Align Eq. 8, 9).

    In each further round, the similarity of two tokens is multiplied by 1 if neither token has a
    link, by `alpha` if one token has a link, and by 0 if both tokens have links. This is the rule
    of the released code of SimAlign and XLM-Align. Eq. 9 sets the similarity of two tokens to 0
    only if they are linked with each other. As in the released code, an example has no further
    round if a side has one or two tokens, or if all tokens of a side have links.

    Args:
      similarity: float [..., m, n].
      source_ids, target_ids: the number of each token's example, from 1, int32 [..., m] and
        [..., n]; 0 for tokens to ignore.
      alpha: from 0 to 1.
      iterations: number of rounds including the first, at least 1. The released code has 2.

    Returns:
      The links, bool [..., m, n]. Each link of a round has a token without earlier links, and no
      two links of a round share a token. So there are at most as many links as tokens.

    Raises:
      ValueError: if `iterations` is below 1.
    """
    check_pairs("itermax", similarity, source_ids, target_ids)
    if iterations < 1:
        raise ValueError(f"iterations={iterations} of itermax: expected at least 1.")
    same = same_example(source_ids, target_ids)
    similarity = jnp.where(same, similarity, 0)
    links = _best(similarity, -1) & _best(similarity, -2)  # [..., m, n], like similarity and same
    # For each row, the number of columns of its example; for each column, the number of rows.
    columns, rows = same.sum(-1, keepdims=True), same.sum(-2, keepdims=True)
    for _ in range(1, iterations):
        row_linked, column_linked = links.any(-1, keepdims=True), links.any(-2, keepdims=True)
        columns_left = (same & ~column_linked).any(-1, keepdims=True)
        rows_left = (same & ~row_linked).any(-2, keepdims=True)
        has_round = (rows > 2) & (columns > 2) & rows_left & columns_left

        one_linked = jnp.where(row_linked & column_linked, 0, alpha)
        multiplier = jnp.where(row_linked | column_linked, one_linked, 1)
        remaining = similarity * multiplier.astype(similarity.dtype)
        links |= has_round & _best(remaining, -1) & _best(remaining, -2)
    return links


def match(similarity: np.ndarray, source_ids: np.ndarray, target_ids: np.ndarray) -> np.ndarray:
    """Links tokens by a maximum-weight matching of each example (SimAlign's Match, section 3.2).

    The function runs in NumPy on the host, not on devices.

    Args:
      similarity: non-negative, float [..., m, n].
      source_ids, target_ids: the number of each token's example, from 1, int32 [..., m] and
        [..., n]; 0 for tokens to ignore. Leading axes are broadcast to those of `similarity`.

    Returns:
      The links, bool [..., m, n].
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    check_pairs("match", similarity, source_ids, target_ids)
    batch = similarity.shape[:-2]
    source_ids = np.broadcast_to(source_ids, batch + source_ids.shape[-1:])
    target_ids = np.broadcast_to(target_ids, batch + target_ids.shape[-1:])
    links = np.zeros(similarity.shape, bool)
    for place in np.ndindex(batch):
        for example in set(source_ids[place].tolist()) - {0}:
            rows = np.flatnonzero(source_ids[place] == example)
            columns = np.flatnonzero(target_ids[place] == example)
            weights = similarity[place][np.ix_(rows, columns)]
            row, column = linear_sum_assignment(weights, maximize=True)
            links[place][rows[row], columns[column]] = weights[row, column] > 0
    return links


def released(transport: Transport) -> jax.Array:
    """Returns the links of XLM-Align's released aligner, bool [..., m, n].

    Source token i and target token j are linked if two conditions hold: element (i, j) is the
    largest of row i in `by_rows`, and it is the largest of column j in `by_columns`. The paper's
    aligner differs: it is `itermax` of the transport plan.
    """
    check(
        "released",
        plan=("float [pairs..., m, n]", transport.plan),
        by_rows=("float [pairs..., m, n]", transport.by_rows),
        by_columns=("float [pairs..., m, n]", transport.by_columns),
    )
    return _best(transport.by_rows, -1) & _best(transport.by_columns, -2)


def labels(links: jax.Array) -> jax.Array:
    """Returns the index of the target token with which each source token is linked.

    If a token has several links, the label is the last index, as in XLM-Align's released code. For
    the labels of target tokens, transpose the links.

    Args:
      links: bool [..., m, n].

    Returns:
      int32 [..., m]; -1 for tokens without links.
    """
    check("labels", links=("bool [..., m, n]", links))
    return jnp.where(links, jnp.arange(links.shape[-1], dtype=jnp.int32), -1).max(-1)


def _best(matrix: jax.Array, axis: int) -> jax.Array:
    """Marks the first maximum along an axis, if it is above 0.

    Args:
      matrix: float [..., m, n].
      axis: -1 or -2.

    Returns:
      bool [..., m, n].
    """
    highest = matrix.max(axis, keepdims=True)
    first = jnp.expand_dims((matrix >= highest * (1 - TIE)).argmax(axis), axis)
    indices = jax.lax.broadcasted_iota(first.dtype, matrix.shape, matrix.ndim + axis)
    return (indices == first) & (matrix > 0)


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
