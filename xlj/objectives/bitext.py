"""Rows of the kind `bitext`: first sentences in one field, second sentences in another.

Each sentence is an example `<s> A </s>`. The pairs have the same order in both fields.
"""

import jax.numpy as jnp

from xlj.contracts.arrays import check
from xlj.data.rows.kinds.bitext import Bitext
from xlj.objectives.objective import Rows


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
