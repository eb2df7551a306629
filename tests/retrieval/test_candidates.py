"""Candidates by FAISS against the exact search."""

from functools import partial

import numpy as np
import pytest

from xlj.config import ConfigError
from xlj.retrieval import candidates, mining
from xlj.retrieval.search import neighbours


@pytest.fixture(scope="module")
def sides():
    """3,000 clustered vectors of size 16, and 2,000 vectors of which half are near one of them."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(40, 16))
    first = centres[draw.integers(0, 40, 3000)] + draw.normal(size=(3000, 16)) / 2
    second = centres[draw.integers(0, 40, 2000)] + draw.normal(size=(2000, 16)) / 2
    second[:1000] = first[:1000] + draw.normal(size=(1000, 16)) / 20
    return first.astype(np.float32), second.astype(np.float32)


def test_margins_of_all_candidates_are_those_of_the_exact_search(sides):
    first, second = (side[:300] for side in sides)
    found = [
        candidates.search_chunks(partial(neighbours, target=b, count=300), a)
        for a, b in ((first, second), (second, first))
    ]
    pairs, wanted = (
        mining.select_pairs(candidates.rank_by_margin(*found)),
        mining.mine(first, second),
    )
    np.testing.assert_array_equal(pairs.sources, wanted.sources)
    np.testing.assert_array_equal(pairs.targets, wanted.targets)
    np.testing.assert_allclose(pairs.scores, wanted.scores, rtol=1e-5)


def test_recall_is_the_share_of_the_exact_four(sides):
    first, second = sides

    def half(queries):
        found = neighbours(queries, second, 4)
        return found._replace(indices=np.where([True, False] * 2, found.indices, -1))

    assert candidates.recall(partial(neighbours, target=second, count=4), first, second) == 1
    assert candidates.recall(half, first, second) == 0.5


def test_more_probes_find_more_and_the_same_pairs(sides):
    pytest.importorskip("faiss", reason="pip install faiss-cpu")
    first, second = sides
    few, many = (candidates.build_search(second, probes=n) for n in (1, 16))
    low, high = (candidates.recall(of, first, second) for of in (few, many))
    assert 0.3 < low < high and high > 0.98
    both = (
        candidates.search_chunks(many, first),
        candidates.search_chunks(candidates.build_search(first, probes=16), second),
    )
    pairs, exact = mining.select_pairs(candidates.rank_by_margin(*both)), mining.mine(first, second)
    found, wanted = (
        {pair for pair in zip(of.sources.tolist(), of.targets.tolist(), strict=True)}
        for of in (pairs, exact)
    )
    assert len(found & wanted) > 0.95 * len(wanted)
    with pytest.raises(ConfigError, match="--index=nonsense"):
        candidates.build_search(second, "nonsense")
