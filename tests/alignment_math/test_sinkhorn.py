"""Sinkhorn against POT and against float64 in the log domain, and its independence of padding."""

import jax
import numpy as np
import pytest
from matrices import packed, padded, random_matrices
from references import alignment as plain

from xlj.alignment_math.sinkhorn import EPSILON, sinkhorn

run = jax.jit(sinkhorn, static_argnames=("iterations", "columns_first", "mu"))


def ones(*shape):
    return np.ones(shape, np.int32)


def square(size, seed=0):
    """Returns products like those of hidden vectors: mostly positive, of different sizes."""
    vectors = np.random.default_rng(seed).normal(0.3, 1, (2, size, 24)).astype(np.float32)
    return vectors[0] @ vectors[1].T


@pytest.mark.parametrize("columns_first", [True, False])
@pytest.mark.parametrize("iterations, mu", [(1, 1.0), (2, 1.0), (2, 0.3), (5, 2.5)])
def test_results_equal_float64_in_the_log_domain(iterations, mu, columns_first):
    matrices = random_matrices(200, 12)
    actual = run(*padded(matrices, 7.0), iterations, columns_first, mu)
    for k, matrix in enumerate(matrices):
        expected = plain.sinkhorn_log(matrix, iterations, columns_first, mu)
        for part, reference in zip(actual, expected, strict=True):
            part = np.asarray(part[k])
            m, n = matrix.shape
            np.testing.assert_allclose(part[:m, :n], reference, atol=2e-6)
            assert not part[m:].any() and not part[:, n:].any()


def test_defaults_are_two_iterations_and_columns_first():
    """The defaults are those of XLM-Align (Table 11 and released code)."""
    similarity = square(5)
    expected = plain.sinkhorn_log(similarity, 2, True)
    for part, reference in zip(run(similarity, ones(5), ones(5)), expected, strict=True):
        np.testing.assert_allclose(part, reference, atol=2e-6)


def test_square_plans_become_doubly_stochastic():
    for size in (2, 7, 40):
        similarity = np.abs(square(size)) + 0.1
        plan = run(similarity, ones(size), ones(size), iterations=3000).plan
        np.testing.assert_allclose(plan.sum(0), 1, atol=1e-6)
        np.testing.assert_allclose(plan.sum(1), 1, atol=1e-6)


def test_plans_equal_those_of_pot(monkeypatch):
    # POT imports all array libraries that it finds; other tests need TensorFlow to be absent.
    for name in ("TENSORFLOW", "PYTORCH", "JAX"):
        monkeypatch.setenv(f"POT_BACKEND_DISABLE_{name}", "1")
    ot = pytest.importorskip("ot", reason="POT is not installed (pip install -e '.[test]')")
    for size in (3, 10, 30):
        similarity = np.abs(square(size, seed=size)) + 0.1
        cost = -np.log(np.maximum(similarity.astype(np.float64), EPSILON))
        marginal = np.ones(size)
        expected = ot.sinkhorn(marginal, marginal, cost, 1.0, numItermax=10000, stopThr=1e-12)
        plan = run(similarity, ones(size), ones(size), iterations=3000).plan
        np.testing.assert_allclose(plan, expected, atol=1e-5)


def test_by_rows_and_by_columns_are_normalised_along_their_axis():
    matrix = np.abs(square(6))[:, :4] + 0.1
    for columns_first in (True, False):
        actual = run(matrix, ones(6), ones(4), columns_first=columns_first)
        np.testing.assert_allclose(actual.by_rows.sum(1), 1, atol=1e-6)
        np.testing.assert_allclose(actual.by_columns.sum(0), 1, atol=1e-6)
        last = actual.by_rows if columns_first else actual.by_columns
        np.testing.assert_array_equal(actual.plan, last)


def test_padding_has_no_effect_with_any_values():
    matrices = random_matrices(50, 9)
    first = run(*padded(matrices, 0.0))
    for filler in (1e30, -5.0, np.nan, np.inf):
        for part, same in zip(first, run(*padded(matrices, filler)), strict=True):
            np.testing.assert_array_equal(part, same)
    similarity, source_ids, target_ids = padded(matrices, 0.0)
    wider = run(
        np.pad(similarity, ((0, 0), (0, 11), (0, 5))),
        np.pad(source_ids, ((0, 0), (0, 11))),
        np.pad(target_ids, ((0, 0), (0, 5))),
    )
    np.testing.assert_allclose(wider.plan[:, :-11, :-5], first.plan, atol=1e-6)


def test_tokens_without_a_partner_have_a_plan_of_zeros():
    plan = run(square(3), np.array([1, 2, 0]), np.array([1, 3, 0])).plan
    expected = np.zeros((3, 3))
    expected[0, 0] = 1
    np.testing.assert_allclose(plan, expected)
    assert not np.asarray(run(square(3), ones(3) * 0, ones(3)).plan).any()


def test_packed_examples_equal_each_example_alone():
    matrices = random_matrices(15, 8)
    similarity, source_ids, target_ids = packed(matrices, 99.0)
    plan = np.asarray(run(similarity, source_ids, target_ids).plan)
    for k, matrix in enumerate(matrices, 1):
        alone = run(matrix, ones(len(matrix)), ones(matrix.shape[1])).plan
        block = plan[np.ix_(source_ids == k, target_ids == k)]
        np.testing.assert_allclose(block, alone, atol=1e-6)


def test_zero_iterations_are_an_error():
    with pytest.raises(ValueError, match="iterations=0"):
        sinkhorn(square(2), ones(2), ones(2), iterations=0)


def test_a_small_mu_does_not_overflow_float32():
    similarity = square(6) * 1e4
    expected = plain.sinkhorn_log(similarity, 2, mu=0.1)
    for part, reference in zip(run(similarity, ones(6), ones(6), mu=0.1), expected, strict=True):
        np.testing.assert_allclose(part, reference, atol=1e-5)
    with pytest.raises(ValueError, match="mu=0.0 of sinkhorn: expected a number above 0"):
        run(similarity, ones(6), ones(6), mu=0.0)
