"""Similarities of vectors, and the prior for links near the diagonal, against NumPy."""

import jax
import numpy as np
import pytest
from matrices import packed, padded
from references import alignment as plain

from xlj.alignment_math import similarity

SIZES = [(1, 1), (1, 4), (3, 5), (6, 2), (5, 5)]


def test_similarities_equal_numpy():
    random = np.random.default_rng(0)
    source, target = (random.normal(size=(3, n, 6)).astype("f") for n in (5, 4))
    products = np.einsum("kih,kjh->kij", source, target)
    np.testing.assert_allclose(
        similarity.dot_products(source, target), products, rtol=1e-5, atol=1e-6
    )
    lengths = [np.linalg.norm(side, axis=-1) for side in (source, target)]
    cosines = products / lengths[0][:, :, None] / lengths[1][:, None]
    actual = similarity.shifted_cosines(source, target)
    np.testing.assert_allclose(actual, (cosines + 1) / 2, rtol=1e-5, atol=1e-6)
    assert (np.asarray(similarity.shifted_cosines(0 * source, target)) == 0.5).all()


@pytest.mark.parametrize("strength", [0.3, 2.0])
def test_the_prior_equals_a_plain_implementation_padded_and_packed(strength):
    matrices = [np.ones(size, np.float32) for size in SIZES]
    prior = jax.jit(similarity.diagonal, static_argnums=2)
    for actual, matrix in zip(prior(*padded(matrices, 0.0)[1:], strength), matrices, strict=True):
        m, n = matrix.shape
        np.testing.assert_allclose(actual[:m, :n], plain.diagonal(m, n, strength), rtol=1e-6)
        assert np.asarray(actual).sum() == np.asarray(actual[:m, :n]).sum()
    _, source_ids, target_ids = packed(matrices, 0.0)
    actual = np.asarray(prior(source_ids, target_ids, strength))
    for example, (m, n) in enumerate(SIZES, 1):
        block = actual[np.ix_(source_ids == example, target_ids == example)]
        np.testing.assert_allclose(block, plain.diagonal(m, n, strength), rtol=1e-6)
    same = source_ids[:, None] == target_ids
    assert not actual[~same].any()
