"""Word alignment as entropy-regularised optimal transport (XLM-Align equations 1 to 6)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import Array, check

EPSILON = 1e-6
"""The smallest similarity of two tokens (XLM-Align Eq. 1; value of the released code)."""


def same_example(source_ids: jax.Array, target_ids: jax.Array) -> jax.Array:
    """Returns which source and target tokens belong to the same example.

    All functions of this package take these two id arrays, so that a matrix has one pair or all
    pairs of a packed row.

    Args:
      source_ids: int32 [..., m], the example of each token, from 1; 0 for tokens to ignore.
      target_ids: int32 [..., n], with the same meaning.

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

    They must be float [..., m, n], int32 [..., m] and int32 [..., n].

    Raises:
      AssertionError: as `xlj.contracts.arrays.check` does.
    """
    check(
        function,
        similarity=("float [..., m, n]", similarity),
        source_ids=("int32 [..., m]", source_ids),
        target_ids=("int32 [..., n]", target_ids),
    )


class Transport(NamedTuple):
    """The results of Sinkhorn's algorithm, float32 [..., m, n] each; 0 between examples."""

    plan: jax.Array  # `by_rows` if columns are first, else `by_columns`
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
    """Normalises columns and rows alternately (XLM-Align Eq. 4 to 6).

    K = max(EPSILON, similarity)^(1 / mu) inside examples and 0 elsewhere. Rows and columns without
    any partner stay zero. If there are as many rows as columns, many iterations converge to a
    doubly stochastic plan.

    Args:
      similarity: [..., m, n], products of hidden vectors; values between examples are ignored.
      source_ids, target_ids: int32 [..., m] and [..., n], as in `same_example`.
      iterations: of both normalisations, at least 1. The released code has 2.
      columns_first: True in the released code; the paper's Eq. 6 begins with rows.
      mu: the weight of the plan's entropy (Eq. 3), above 0; 1 in the released code.
    """
    check_pairs("sinkhorn", similarity, source_ids, target_ids)
    if iterations < 1:
        raise ValueError(f"iterations={iterations} of sinkhorn: expected at least 1.")
    if mu <= 0:
        raise ValueError(f"mu={mu} of sinkhorn: expected a number above 0.")
    same = same_example(source_ids, target_ids)
    similarity = jnp.maximum(similarity.astype(jnp.float32), EPSILON)
    if mu != 1:
        # The first normalisation cancels any factor of a column (or row). Dividing each column (or
        # row) by its maximum keeps powers with a small mu within float32.
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
    total = matrix.sum(axis, keepdims=True)
    return matrix / jnp.where(total > 0, total, 1)
