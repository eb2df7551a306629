"""The layout of packed rows, derived from their tokens."""

import jax.numpy as jnp
import numpy as np

from xlj.objectives.segments import segments


def test_pairs_and_padding():
    #                 <s> A  A </s> B </s> <s> C </s> D  D </s> pad pad
    row = jnp.array([[0, 10, 11, 2, 12, 2, 0, 13, 2, 14, 15, 2, 1, 1]])
    layout = segments(row)
    assert layout.segment[0].tolist() == [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0, 0]
    assert layout.side[0].tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0]
    assert layout.position[0].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 0]


def test_an_empty_row_is_all_padding():
    layout = segments(jnp.ones((2, 5), jnp.int32))
    assert all((np.asarray(part) == 0).all() for part in layout)
