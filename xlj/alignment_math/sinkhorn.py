"""Word alignment as entropy-regularised optimal transport (XLM-Align equations 1 to 6)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import Array, check

EPSILON = 1e-6
"""The smallest similarity of two tokens (XLM-Align Eq. 1; the value is the released code's)."""


def same_example(source_ids: jax.Array, target_ids: jax.Array) -> jax.Array:
    """Which source and target tokens belong to the same example.

    Every function of this room takes the same two id arrays, so that one matrix may hold one pair
    or all the pairs of a packed row.

    Args:
      source_ids: int32 [..., m], the example of each token, from 1; 0 is not a token of the source.
      target_ids: int32 [..., n], likewise.

    Returns:
      bool [..., m, n].
    """
    check(
        "same_example",
        source_ids=("int32 [..., m]", source_ids),
        target_ids=("int32 [..., n]", target_ids),
    )
    source, target = source_ids[..., :, None], target_ids[..., None, :]
    return (source == target) & (source != 0)


def check_pairs(function: str, similarity: Array, source_ids: Array, target_ids: Array) -> None:
    """Checks what a function of similarities and of their examples is given: float [..., m, n],
    int32 [..., m] and [..., n]. Raises AssertionError, as `xlj.contracts.arrays.check`."""
    check(
        function,
        similarity=("float [..., m, n]", similarity),
        source_ids=("int32 [..., m]", source_ids),
        target_ids=("int32 [..., n]", target_ids),
    )


class Transport(NamedTuple):
    """The end of Sinkhorn's algorithm, each float32 [..., m, n], zero between examples."""

    plan: jax.Array  # `by_rows` if columns come first, else `by_columns`
    by_rows: jax.Array  # the last matrix whose rows sum to 1
    by_columns: jax.Array  # the last matrix whose columns sum to 1


def sinkhorn(
    similarity: jax.Array,
    source_ids: jax.Array,
    target_ids: jax.Array,
    iterations: int = 2,
    columns_first: bool = True,
    mu: float = 1.0,
) -> Transport:
    """Normalises columns and rows in turn (XLM-Align Eq. 4 to 6).

    K = max(EPSILON, similarity)^(1 / mu) inside an example and 0 elsewhere; a row or a column
    without any partner stays zero. With as many rows as columns, many iterations give a doubly
    stochastic plan.

    Args:
      similarity: [..., m, n], products of hidden vectors; read inside examples only.
      source_ids, target_ids: int32 [..., m] and [..., n], as in `same_example`.
      iterations: of both normalisations, at least 1. The released code does 2.
      columns_first: as released; the paper's Eq. 6 begins with the rows.
      mu: the weight of the plan's entropy (Eq. 3), above 0; 1 as released.
    """
    check_pairs("sinkhorn", similarity, source_ids, target_ids)
    if iterations < 1:
        raise ValueError(f"iterations={iterations}; there must be at least 1")
    if mu <= 0:
        raise ValueError(f"mu={mu}; it must be above 0")
    same = same_example(source_ids, target_ids)
    similarity = jnp.maximum(similarity.astype(jnp.float32), EPSILON)
    if mu != 1:
        # The first normalisation takes off any factor of a row or a column: powers of a small mu
        # stay within float32 if each is relative to the largest of that row or column.
        axis = -2 if columns_first else -1
        highest = jnp.where(same, similarity, EPSILON).max(axis, keepdims=True)
        similarity = (similarity / highest) ** (1 / mu)
    kernel = jnp.where(same, similarity, 0)

    def iteration(_: int, matrices: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        by_rows, by_columns = matrices
        if columns_first:
            by_columns = _normalised(by_rows, -2)
            return _normalised(by_columns, -1), by_columns
        by_rows = _normalised(by_columns, -1)
        return by_rows, _normalised(by_rows, -2)

    by_rows, by_columns = jax.lax.fori_loop(0, iterations, iteration, (kernel, kernel))
    return Transport(by_rows if columns_first else by_columns, by_rows, by_columns)


def _normalised(matrix: jax.Array, axis: int) -> jax.Array:
    total = matrix.sum(axis, keepdims=True)
    return matrix / jnp.where(total > 0, total, 1)
