"""Word alignment as entropy-regularised optimal transport (XLM-Align equations 1 to 6)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import Array, check

EPSILON = 1e-6
"""The smallest similarity of two tokens (XLM-Align Eq. 1; value of the released code)."""


def same_example(source_ids: jax.Array, target_ids: jax.Array) -> jax.Array:
    """Returns which source and target tokens belong to the same example.

    The functions of this package take these two arrays of ids. So they accept matrices of one
    sentence pair, and matrices of all pairs of a packed row.

    Args:
      source_ids, target_ids: the number of each token's example, from 1, int32 [..., m] and
        [..., n]; 0 for tokens to ignore.

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
    """Checks the arguments of a function of similarities.

    Args:
      function: the name of the function, for the message.
      similarity: must be float [..., m, n].
      source_ids, target_ids: must be int32 [..., m] and [..., n].

    Raises:
      AssertionError: if an argument does not match (`xlj.contracts.arrays.check`).
    """
    check(
        function,
        similarity=("float [..., m, n]", similarity),
        source_ids=("int32 [..., m]", source_ids),
        target_ids=("int32 [..., n]", target_ids),
    )


class Transport(NamedTuple):
    """The results of Sinkhorn's algorithm, float32 [..., m, n] each; 0 between examples."""

    plan: jax.Array  # the last matrix: `by_rows` if `columns_first`, else `by_columns`
    by_rows: jax.Array  # the last matrix whose rows are normalised to a sum of 1
    by_columns: jax.Array  # the last matrix whose columns are normalised to a sum of 1


def sinkhorn(
    similarity: jax.Array,
    source_ids: jax.Array,
    target_ids: jax.Array,
    iterations: int = 2,
    columns_first: bool = True,
    mu: float = 1.0,
) -> Transport:
    """Normalises columns and rows of a kernel alternately (XLM-Align Eq. 4 to 6).

    The kernel is K = max(EPSILON, similarity)^(1 / mu) between tokens of the same example, and 0
    elsewhere. Rows and columns of tokens without a partner stay zero. If an example has as many
    rows as columns, many iterations converge to a doubly stochastic plan.

    Args:
      similarity: products of hidden vectors, float [..., m, n]. Values between different examples
        are ignored.
      source_ids, target_ids: the number of each token's example, from 1, int32 [..., m] and
        [..., n]; 0 for tokens to ignore.
      iterations: number of normalisations of columns, and of rows, at least 1. The released code
        has 2.
      columns_first: whether each iteration begins with columns, as in the released code. The
        paper's Eq. 6 begins with rows.
      mu: the weight of the plan's entropy (Eq. 3), above 0. The released code has 1.

    Raises:
      ValueError: if `iterations` or `mu` is too small.
    """
    check_pairs("sinkhorn", similarity, source_ids, target_ids)
    if iterations < 1:
        raise ValueError(f"iterations={iterations} of sinkhorn: expected at least 1.")
    if mu <= 0:
        raise ValueError(f"mu={mu} of sinkhorn: expected a number above 0.")
    same = same_example(source_ids, target_ids)
    similarity = jnp.maximum(similarity.astype(jnp.float32), EPSILON)
    if mu != 1:
        # Each column (or row, if rows are first) is divided by its maximum. Its powers are then at
        # most 1, so they fit into float32 also with a small mu. The first normalisation cancels the
        # divisors.
        axis = -2 if columns_first else -1
        highest = jnp.where(same, similarity, EPSILON).max(axis, keepdims=True)
        similarity = (similarity / highest) ** (1 / mu)
    kernel = jnp.where(same, similarity, 0)

    def iteration(_: int, matrices: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        by_rows, by_columns = matrices
        if columns_first:
            by_columns = _normalise(by_rows, -2)
            return _normalise(by_columns, -1), by_columns
        by_rows = _normalise(by_columns, -1)
        return by_rows, _normalise(by_rows, -2)

    by_rows, by_columns = jax.lax.fori_loop(0, iterations, iteration, (kernel, kernel))
    return Transport(by_rows if columns_first else by_columns, by_rows, by_columns)


def _normalise(matrix: jax.Array, axis: int) -> jax.Array:
    """Divides by the sums along an axis; where a sum is 0, the values stay 0."""
    total = matrix.sum(axis, keepdims=True)
    return matrix / jnp.where(total > 0, total, 1)
