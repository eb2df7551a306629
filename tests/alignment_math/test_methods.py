"""Methods of alignment, from vectors to links: the prior against plain NumPy, soft alignments."""

import jax
import numpy as np
import pytest
from matrices import links_of, packed, padded, random_matrices
from references import alignment as plain

from xlj.alignment_math import methods
from xlj.config.choices import METHODS

SIZES = [(1, 1), (1, 4), (3, 5), (6, 2), (5, 5)]


@pytest.mark.parametrize("strength", [0.3, 2.0])
def test_the_prior_is_the_transcription_padded_and_packed(strength):
    matrices = [np.ones(size, np.float32) for size in SIZES]
    prior = jax.jit(methods.diagonal, static_argnums=2)
    for found, matrix in zip(prior(*padded(matrices, 0.0)[1:], strength), matrices, strict=True):
        m, n = matrix.shape
        np.testing.assert_allclose(found[:m, :n], plain.diagonal(m, n, strength), rtol=1e-6)
        assert np.asarray(found).sum() == np.asarray(found[:m, :n]).sum()
    _, source_ids, target_ids = packed(matrices, 0.0)
    found = np.asarray(prior(source_ids, target_ids, strength))
    for example, (m, n) in enumerate(SIZES, 1):
        block = found[np.ix_(source_ids == example, target_ids == example)]
        np.testing.assert_allclose(block, plain.diagonal(m, n, strength), rtol=1e-6)
    same = source_ids[:, None] == target_ids
    assert not found[~same].any()


def vectors(m, n, seed):
    random = np.random.default_rng(seed)
    return random.normal(size=(m, 6)).astype("f"), random.normal(size=(n, 6)).astype("f")


@pytest.mark.parametrize("strength", [0.0, 1.5])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_the_transcription_with_the_prior(method, strength):
    align = jax.jit(methods.align, static_argnums=(0, 5))
    changed = 0
    for seed in range(40):
        source, target = vectors(5, 6, seed)
        ones = np.ones(5, np.int32), np.ones(6, np.int32)
        soft, links = align(method, source, target, *ones, strength)
        prior = plain.diagonal(5, 6, strength)
        unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (source, target)]
        if method in ("optimal_transport", "released"):
            plan, by_rows, by_columns = plain.sinkhorn_log(source @ target.T * prior, 2)
            expected = plan if method == "optimal_transport" else np.minimum(by_rows, by_columns)
        else:
            expected = (unit[0] @ unit[1].T + 1) / 2 * prior
        np.testing.assert_allclose(soft, expected, rtol=1e-4, atol=1e-6)
        if method == "match":
            assert links is None
            continue
        if method == "released":
            wanted = plain.released(list(by_rows), list(by_columns))
        else:
            rule = plain.argmax if method == "argmax" else plain.itermax
            wanted = rule(list(np.asarray(soft)))
        assert links_of(np.asarray(links)) == wanted
        without = align(method, source, target, *ones, 0.0)[1]
        changed += links_of(np.asarray(without)) != wanted
    assert method == "match" or (changed > 5) == (strength > 0)


def test_soft_alignments_keep_examples_apart():
    matrices = random_matrices(6, 5)
    _, source_ids, target_ids = packed(matrices, 0.0)
    source, target = vectors(len(source_ids), len(target_ids), 0)
    for method in METHODS:
        soft = np.asarray(methods.align(method, source, target, source_ids, target_ids, 0.5).soft)
        apart = source_ids[:, None] != target_ids
        apart |= source_ids[:, None] == 0
        assert not soft[apart].any() and 0 <= soft.min() and soft.max() <= 1 + 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_aligned_as_each_pair_alone(method):
    pairs = [vectors(5, 6, seed) for seed in range(3)]
    ones = np.ones((3, 5), np.int32), np.ones((3, 6), np.int32)
    found = methods.align(method, *map(np.stack, zip(*pairs, strict=True)), *ones, 0.5)
    for k, pair in enumerate(pairs):
        alone = methods.align(method, *pair, ones[0][k], ones[1][k], 0.5)
        np.testing.assert_allclose(found.soft[k], alone.soft, rtol=1e-5, atol=1e-6)
        if alone.links is not None:
            np.testing.assert_array_equal(found.links[k], alone.links)
