"""The layout of packed rows, derived from their tokens."""

import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import Model
from xlj.models.segments import languages_of, segments, whole_examples


def test_layout_of_pairs_and_padding():
    #                 <s> A  A </s> B </s> <s> C </s> D  D </s> pad pad
    row = jnp.array([[0, 10, 11, 2, 12, 2, 0, 13, 2, 14, 15, 2, 1, 1]])
    layout = segments(row)
    assert layout.segment[0].tolist() == [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0, 0]
    assert layout.side[0].tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0]
    assert layout.position[0].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 0]

    languages = languages_of(layout, jnp.array([[5, 3]]))
    assert languages[0].tolist() == [5, 5, 5, 5, 3, 3, 5, 5, 5, 3, 3, 3, -1, -1]


def test_sides_after_the_second_have_the_language_of_the_second():
    row = jnp.array([[0, 10, 2, 11, 2, 12, 2]])
    assert segments(row).side[0].tolist() == [0, 0, 0, 1, 1, 2, 2]
    languages = languages_of(segments(row), jnp.array([[5, 3]]))
    assert languages[0].tolist() == [5, 5, 5, 3, 3, 3, 3]


def test_an_empty_row_is_all_padding():
    layout = segments(jnp.ones((2, 5), jnp.int32))
    assert all((np.asarray(part) == 0).all() for part in layout)


@pytest.mark.parametrize("embeddings", ["none", "predicted", "all"])
def test_tokens_are_marked_with_languages_if_language_embeddings_is_all(embeddings):
    row, languages = jnp.array([[0, 10, 2, 12, 2, 1]]), jnp.array([[5, 3]])
    actual = whole_examples(Model(language_embeddings=embeddings), row, languages).languages
    expected = [5, 5, 5, 3, 3, -1] if embeddings == "all" else None
    assert (None if actual is None else actual[0].tolist()) == expected
