"""Links between tokens, from similarities or a transport plan (XLM-Align equations 7 to 9).

Matrices are not negative; a similarity of zero, or less, gives no link. Among equals the first
index wins, where equal means to within TIE: a plan with a side of one token is all equal, up to
rounding that depends on the shape of the batch. Every rule holds for each example by itself, also
where a row packs several.
"""

import jax
import jax.numpy as jnp
import numpy as np

from xlj.alignment_math.sinkhorn import Transport, check_pairs, same_example
from xlj.contracts.arrays import check

TIE = 1e-5
"""The relative difference below which two values are the same (ours)."""


def argmax(similarity: jax.Array, source_ids: jax.Array, target_ids: jax.Array) -> jax.Array:
    """Links of tokens that are each other's most similar (SimAlign's Argmax; XLM-Align Eq. 7, 8).

    Args:
      similarity: [..., m, n].
      source_ids, target_ids: int32 [..., m] and [..., n], as in `same_example`.

    Returns:
      bool [..., m, n].
    """
    check_pairs("argmax", similarity, source_ids, target_ids)
    similarity = jnp.where(same_example(source_ids, target_ids), similarity, 0)
    return _best(similarity, -1) & _best(similarity, -2)


def union(similarity: jax.Array, source_ids: jax.Array, target_ids: jax.Array) -> jax.Array:
    """Links of every token with its most similar one (XLM-Align Eq. 7 and Table 6, no filtering).

    Args and returns: as of `argmax`.
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
    """`argmax`, and further rounds for tokens still without a link (SimAlign; XLM-Align Eq. 8, 9).

    In each further round a similarity is multiplied by 1 if neither token has a link, by `alpha` if
    one of them has, and by 0 if both have. This is what the released code of SimAlign and XLM-Align
    does; Eq. 9 sets only the linked cells themselves to 0. As released, too, there is no further
    round in an example with a side of one or two tokens, nor where all tokens of a side have links.

    Args:
      similarity, source_ids, target_ids: as of `argmax`.
      alpha: from 0 to 1.
      iterations: rounds, the first included; at least 1. The released code does 2.

    Returns:
      As `argmax`. A link of a round has a token that had none before it, and no two links of a
      round share a token: there are no more links than tokens.
    """
    check_pairs("itermax", similarity, source_ids, target_ids)
    if iterations < 1:
        raise ValueError(f"iterations={iterations}; there must be at least 1")
    same = same_example(source_ids, target_ids)
    similarity = jnp.where(same, similarity, 0)
    links = _best(similarity, -1) & _best(similarity, -2)
    # Of the example of each row, or column: its tokens on the other side, in all and without links.
    columns, rows = same.sum(-1, keepdims=True), same.sum(-2, keepdims=True)
    for _ in range(1, iterations):
        row_linked, column_linked = links.any(-1, keepdims=True), links.any(-2, keepdims=True)
        columns_left = (same & ~column_linked).any(-1, keepdims=True)
        rows_left = (same & ~row_linked).any(-2, keepdims=True)
        goes_on = (rows > 2) & (columns > 2) & rows_left & columns_left

        one_linked = jnp.where(row_linked & column_linked, 0, alpha)
        multiplier = jnp.where(row_linked | column_linked, one_linked, 1)
        left = similarity * multiplier.astype(similarity.dtype)
        links |= goes_on & _best(left, -1) & _best(left, -2)
    return links


def match(similarity: np.ndarray, source_ids: np.ndarray, target_ids: np.ndarray) -> np.ndarray:
    """Links of a maximum-weight matching of each example (SimAlign's Match, section 3.2), in NumPy
    on the host. A similarity of zero gives no link.

    Args:
      similarity: float32 [..., m, n], not negative.
      source_ids, target_ids: as of `argmax`; their leading axes may be broadcast.

    Returns:
      bool [..., m, n].
    """
    from scipy.optimize import linear_sum_assignment  # it takes its time to import

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
    """Links of XLM-Align's released aligner: bool [..., m, n].

    The best column of each row of the row-normalised matrix, where it has that row as its best in
    the last column-normalised one. (The paper's aligner is `itermax` of the plan.)
    """
    check(
        "released",
        plan=("float [pairs..., m, n]", transport.plan),
        by_rows=("float [pairs..., m, n]", transport.by_rows),
        by_columns=("float [pairs..., m, n]", transport.by_columns),
    )
    return _best(transport.by_rows, -1) & _best(transport.by_columns, -2)


def labels(links: jax.Array) -> jax.Array:
    """The target of each source token: bool [..., m, n] -> target positions, int32 [..., m].

    A token with several links has the last one as its label, as released; one without has -1.
    Labels of the target tokens are those of the transposed links.
    """
    check("labels", links=("bool [..., m, n]", links))
    return jnp.where(links, jnp.arange(links.shape[-1], dtype=jnp.int32), -1).max(-1)


def _best(matrix: jax.Array, axis: int) -> jax.Array:
    """Where the first maximum along an axis is, if it is positive; the shape of the matrix."""
    highest = matrix.max(axis, keepdims=True)
    first = jnp.expand_dims((matrix >= highest * (1 - TIE)).argmax(axis), axis)
    places = jax.lax.broadcasted_iota(first.dtype, matrix.shape, matrix.ndim + axis)
    return (places == first) & (matrix > 0)
