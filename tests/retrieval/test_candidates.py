"""Margins among candidates, and approximate search with FAISS, compared with exact search."""

from functools import partial

import numpy as np
import pytest

from xlj.config import ConfigError
from xlj.retrieval import candidates, mining
from xlj.retrieval.search import neighbours


@pytest.fixture(scope="module")
def sides():
    """3,000 clustered vectors, and 2,000 vectors; the first 1,000 of both are close to each other.

    All vectors have 16 elements.
    """
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(40, 16))
    first = centres[draw.integers(0, 40, 3000)] + draw.normal(size=(3000, 16)) / 2
    second = centres[draw.integers(0, 40, 2000)] + draw.normal(size=(2000, 16)) / 2
    second[:1000] = first[:1000] + draw.normal(size=(1000, 16)) / 20
    return first.astype(np.float32), second.astype(np.float32)


def test_margins_equal_exact_search_if_all_sentences_are_candidates(sides):
    first, second = (side[:300] for side in sides)
    both_directions = [
        candidates.search_chunks(partial(neighbours, target=b, count=300), a)
        for a, b in ((first, second), (second, first))
    ]
    pairs, expected = (
        mining.select_pairs(candidates.rank_by_margin(*both_directions)),
        mining.mine(first, second),
    )
    np.testing.assert_array_equal(pairs.sources, expected.sources)
    np.testing.assert_array_equal(pairs.targets, expected.targets)
    np.testing.assert_allclose(pairs.scores, expected.scores, rtol=1e-5)


def test_recall_is_the_share_of_the_four_nearest_neighbours(sides):
    first, second = sides

    def half_search(queries):
        exact = neighbours(queries, second, 4)
        return exact._replace(indices=np.where([True, False] * 2, exact.indices, -1))

    assert candidates.recall(partial(neighbours, target=second, count=4), first, second) == 1
    assert candidates.recall(half_search, first, second) == 0.5


def test_more_probes_raise_recall_and_give_the_pairs_of_exact_search(sides):
    pytest.importorskip("faiss", reason="pip install faiss-cpu")
    first, second = sides
    few_probes, many_probes = (candidates.build_search(second, probes=n) for n in (1, 16))
    low_recall, high_recall = (
        candidates.recall(search, first, second) for search in (few_probes, many_probes)
    )
    assert 0.3 < low_recall < high_recall and high_recall > 0.98
    both_directions = (
        candidates.search_chunks(many_probes, first),
        candidates.search_chunks(candidates.build_search(first, probes=16), second),
    )
    pairs, exact = (
        mining.select_pairs(candidates.rank_by_margin(*both_directions)),
        mining.mine(first, second),
    )
    approximate_pairs, exact_pairs = (
        {pair for pair in zip(result.sources.tolist(), result.targets.tolist(), strict=True)}
        for result in (pairs, exact)
    )
    assert len(approximate_pairs & exact_pairs) > 0.95 * len(exact_pairs)
    with pytest.raises(ConfigError, match="--index=nonsense"):
        candidates.build_search(second, "nonsense")
