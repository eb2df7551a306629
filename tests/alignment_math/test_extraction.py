"""Extraction of word links: every function against a plain implementation, padded and packed.

Also similarities of vectors, and the prior for links near the diagonal, against NumPy.
"""

import itertools
from functools import partial

import jax
import numpy as np
import pytest
from matrices import links_of, packed, padded, random_matrices
from references import alignment as plain

from xlj.alignment_math import extraction
from xlj.alignment_math.extraction import match
from xlj.alignment_math.sinkhorn import Transport, sinkhorn

MATRICES = random_matrices(10_000, 8)

RULES = {
    "argmax": (jax.jit(extraction.argmax), plain.argmax),
    "union": (jax.jit(extraction.union), plain.union),
    "itermax": (jax.jit(extraction.itermax), plain.itermax),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("filler", [0.0, 5.0])
def test_links_equal_a_plain_implementation(rule, filler):
    extract, reference = RULES[rule]
    all_links = np.asarray(extract(*padded(MATRICES, filler)))
    for links, matrix in zip(all_links, MATRICES, strict=True):
        assert links_of(links) == reference(list(matrix))


def test_released_and_itermax_on_transport_plans_equal_a_plain_implementation():
    similarity, source_ids, target_ids = padded(MATRICES, 5.0)
    transport = jax.jit(sinkhorn)(similarity, source_ids, target_ids)
    released = np.asarray(jax.jit(extraction.released)(transport))
    filtered = np.asarray(RULES["itermax"][0](transport.plan, source_ids, target_ids))
    transport = Transport(*map(np.asarray, transport))
    for k, matrix in enumerate(MATRICES):
        m, n = matrix.shape
        by_rows, by_columns = transport.by_rows[k, :m, :n], transport.by_columns[k, :m, :n]
        assert links_of(released[k]) == plain.released(list(by_rows), list(by_columns))
        assert links_of(filtered[k]) == plain.itermax(list(by_rows))


@pytest.mark.parametrize("rule", RULES)
def test_negative_similarities_give_no_link(rule):
    extract, reference = RULES[rule]
    matrices = [matrix - np.float32(0.3) for matrix in MATRICES[:500]]
    for links, matrix in zip(np.asarray(extract(*padded(matrices, 0.0))), matrices, strict=True):
        assert links_of(links) == reference(list(matrix))


def test_each_round_adds_links():
    matrices = [list(matrix) for matrix in MATRICES[:1000]]
    links_by_rounds = [[plain.itermax(m, iterations=n) for m in matrices] for n in (1, 2, 3)]
    assert links_by_rounds[0] == [plain.argmax(m) for m in matrices]
    for fewer, more in itertools.pairwise(links_by_rounds):
        assert sum(map(set.__lt__, fewer, more)) > 10


@pytest.mark.parametrize("alpha, iterations", [(0.5, 2), (0.9, 1), (0.9, 5), (0.0, 3)])
def test_itermax_with_other_factors_and_rounds(alpha, iterations):
    extract = jax.jit(partial(extraction.itermax, alpha=alpha, iterations=iterations))
    all_links = np.asarray(extract(*padded(MATRICES[:1000], 5.0)))
    for links, matrix in zip(all_links, MATRICES, strict=False):
        expected = plain.itermax(list(matrix), alpha, iterations)
        assert links_of(links) == expected and len(expected) <= sum(matrix.shape)


def test_the_second_round_follows_the_released_code_and_not_equation_9():
    matrix = np.array([[1.0, 0.9, 0.25], [0.1, 1.0, 0.1], [0.3, 0.1, 0.2]], np.float32)
    ids = np.ones(3, np.int32)
    assert links_of(extraction.argmax(matrix, ids, ids)) == {(0, 0), (1, 1)}
    # By Eq. 9, (0, 1) would keep 0.9 * 0.9 and be linked, although its row and column have links.
    assert links_of(extraction.itermax(matrix, ids, ids)) == {(0, 0), (1, 1), (2, 0), (0, 2)}


def test_packed_examples_have_the_links_of_each_example_alone():
    for k in range(0, 100, 20):
        matrices = MATRICES[k : k + 20]
        similarity, source_ids, target_ids = packed(matrices, 5.0)
        for extract, reference in [*RULES.values(), (match, None)]:
            links = np.asarray(extract(similarity, source_ids, target_ids))
            inside = 0
            for example, matrix in enumerate(matrices, 1):
                block = links[np.ix_(source_ids == example, target_ids == example)]
                if reference is None:
                    m, n = np.ones(matrix.shape[0], np.int32), np.ones(matrix.shape[1], np.int32)
                    assert links_of(block) == links_of(match(matrix, m, n))
                else:
                    assert links_of(block) == reference(list(matrix))
                inside += block.sum()
            assert inside == links.sum()  # no link between examples


def test_match_is_the_best_of_all_matchings():
    for matrix in random_matrices(300, 5, seed=1):
        m, n = matrix.shape
        links = links_of(match(matrix, np.ones(m, np.int32), np.ones(n, np.int32)))
        assert len({i for i, _ in links}) == len({j for _, j in links}) == len(links)
        assert all(matrix[i, j] > 0 for i, j in links)
        wide = matrix if m <= n else matrix.T
        best = max(
            sum(wide[i, j] for i, j in enumerate(order))
            for order in itertools.permutations(range(wide.shape[1]), wide.shape[0])
        )
        np.testing.assert_allclose(sum(matrix[i, j] for i, j in links), best, rtol=1e-6)


def test_match_in_batches_equals_one_by_one():
    matrices = MATRICES[:200]
    all_links = match(*padded(matrices, 5.0))
    for links, matrix in zip(all_links, matrices, strict=True):
        m, n = matrix.shape
        alone = match(matrix, np.ones(m, np.int32), np.ones(n, np.int32))
        assert links_of(links) == links_of(alone)


def test_no_link_without_similarity():
    zeros, ids = np.zeros((4, 5), np.float32), (np.ones(4, np.int32), np.ones(5, np.int32))
    for rule in (extraction.argmax, extraction.itermax, match):
        assert not np.asarray(rule(zeros, *ids)).any()
    for rule in (extraction.argmax, extraction.itermax):
        assert not np.asarray(rule(zeros - 1, *ids)).any()


def test_a_side_of_one_token_is_linked_to_the_first_token_with_any_padding():
    wide = np.random.default_rng(3).random((64, 1, 7)).astype(np.float32)
    released, itermax = jax.jit(extraction.released), jax.jit(extraction.itermax)
    for similarity in (wide, wide.transpose(0, 2, 1)):
        for padding in (0, 1, 5, 9):
            padded_similarity = np.pad(similarity, ((0, 0), (0, padding), (0, padding)))
            source_ids, target_ids = (
                np.pad(np.ones((64, size), np.int32), ((0, 0), (0, padding)))
                for size in similarity.shape[1:]
            )
            transport = jax.jit(sinkhorn)(padded_similarity, source_ids, target_ids)
            for links in (
                released(transport),
                itermax(transport.plan, source_ids, target_ids),
            ):
                assert np.asarray(links).sum() == 64 and np.asarray(links)[:, 0, 0].all()


def test_the_label_of_a_token_is_its_last_link():
    random = np.random.default_rng(2)
    links = random.random((30, 6, 9)) < 0.2
    labels = np.asarray(extraction.labels(links))
    assert labels.dtype == np.int32
    for k in range(len(links)):
        pairs = links_of(links[k])
        assert labels[k].tolist() == [plain.label(pairs, i) for i in range(6)]


SIZES = [(1, 1), (1, 4), (3, 5), (6, 2), (5, 5)]


def test_similarities_equal_numpy():
    random = np.random.default_rng(0)
    source, target = (random.normal(size=(3, n, 6)).astype("f") for n in (5, 4))
    products = np.einsum("kih,kjh->kij", source, target)
    np.testing.assert_allclose(
        extraction.dot_products(source, target), products, rtol=1e-5, atol=1e-6
    )
    lengths = [np.linalg.norm(side, axis=-1) for side in (source, target)]
    cosines = products / lengths[0][:, :, None] / lengths[1][:, None]
    actual = extraction.shifted_cosines(source, target)
    np.testing.assert_allclose(actual, (cosines + 1) / 2, rtol=1e-5, atol=1e-6)
    assert (np.asarray(extraction.shifted_cosines(0 * source, target)) == 0.5).all()


@pytest.mark.parametrize("strength", [0.3, 2.0])
def test_the_prior_equals_a_plain_implementation_padded_and_packed(strength):
    matrices = [np.ones(size, np.float32) for size in SIZES]
    prior = jax.jit(extraction.diagonal, static_argnums=2)
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
