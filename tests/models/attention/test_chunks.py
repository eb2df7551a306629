"""Attention in a loop over chunks of queries, against dense attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_kernels import computed, dense, largest_error, problem, with_gradients

from xlj.models.attention.chunks import QueryChunks
from xlj.models.attention.interface import Mask, Operands


def chunked(arrays, ids, rate, window):
    return computed(QueryChunks(), 128, arrays, ids, rate, window)


@pytest.mark.parametrize(
    "length, bias, rate, window",
    [
        (300, "gated", 0.3, None),  # the third chunk is padded
        (256, "t5", 0.0, 64),
        (257, "none", 0.3, 5),
        (40, "gated", 0.1, None),  # one chunk
    ],
)
def test_chunks_equal_dense_attention(length, bias, rate, window):
    arrays, ids, weights = problem(2, length, 3, 16, bias)
    actual = with_gradients(lambda a: chunked(a, ids, rate, window), arrays, weights)
    expected = with_gradients(lambda a: dense(a, ids, rate, window), arrays, weights)
    for name, array in expected.items():
        assert largest_error(actual[name], array) < 1e-5, name


def test_gradients_of_keys_are_summed_over_chunks_in_float32():
    """In bfloat16, errors are as those of dense attention, also in rows of 16 chunks."""
    arrays, ids, weights = problem(1, 2048, 1, 16, "none", jnp.bfloat16)
    ids = [jnp.zeros_like(each) for each in ids]
    wide = {name: array.astype(jnp.float32) for name, array in arrays.items()}
    exact = with_gradients(lambda a: dense(a, ids, 0.0), wide, weights)
    actual = with_gradients(lambda a: chunked(a, ids, 0.0, None), arrays, weights)
    plain = with_gradients(lambda a: dense(a, ids, 0.0), arrays, weights)
    for name, array in exact.items():
        error, plain_error = (largest_error(x[name], array) for x in (actual, plain))
        assert error < 1.2 * plain_error + 1e-4, (name, error, plain_error)


def test_the_backward_pass_saves_no_scores():
    arrays, ids, _ = problem(2, 512, 2, 16)

    def attend(query, key, value):
        return QueryChunks().attend(Operands(query, key, value, Mask(*ids)))

    saved = jax.tree.leaves(jax.vjp(attend, *arrays.values())[1])
    vectors = 2 * 512 * 2 * 16
    assert max(leaf.size for leaf in saved) == vectors
    text = jax.jit(jax.grad(lambda *a: attend(*a).sum(), (0, 1, 2))).lower(*arrays.values())
    assert "512x512x" not in text.as_text() and np.isfinite(attend(*arrays.values())).all()
