"""Mining finds translations first, and uses no sentence twice.

Also margins among candidates, and approximate search with FAISS, compared with exact search.
"""

from functools import partial

import numpy as np
import pytest

from xlj.config import ConfigError
from xlj.evaluation.metrics import best_threshold, pair_scores
from xlj.retrieval import mining, search
from xlj.retrieval.search import neighbours


def texts(seed, planted, sources, targets, noise):
    """Draws shuffled sentence vectors of two texts, with `planted` pairs of translations.

    Returns the vectors of both texts, and the true pairs.
    """
    rng = np.random.default_rng(seed)
    sides = [rng.normal(size=(n, 16)) + 0.5 for n in (sources, targets)]
    sides[1][:planted] = sides[0][:planted] + noise * rng.normal(size=(planted, 16))
    orders = [rng.permutation(n) for n in (sources, targets)]
    places = [np.argsort(order)[:planted] for order in orders]
    gold = set(zip(*(place.tolist() for place in places), strict=True))
    return *(side[order] for side, order in zip(sides, orders, strict=True)), gold


def plain_search(source, target):
    """Returns all pairs that are best for one of their sentences; best first, no sentence twice."""
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (source, target)]
    cosines = unit[0] @ unit[1].T
    rows, columns = (-np.sort(-cosines, axis=axis) for axis in (1, 0))
    margins = cosines / ((rows[:, :4].mean(1)[:, None] + columns[:4].mean(0)) / 2)
    candidates = {(i, int(j)) for i, j in enumerate(margins.argmax(1))}
    candidates |= {(int(i), j) for j, i in enumerate(margins.argmax(0))}
    selected = []
    for i, j in sorted(candidates, key=lambda pair: -margins[pair]):
        if not any(i == other or j == another for other, another in selected):
            selected.append((i, j))
    return selected


@pytest.mark.parametrize("sizes", [(40, 25), (25, 40), (30, 30), (6, 2)])
def test_pairs_equal_a_plain_search(sizes):
    source, target, _ = texts(sum(sizes), 2, *sizes, 0.5)
    mined = mining.mine(source, target)
    pairs = list(zip(mined.sources.tolist(), mined.targets.tolist(), strict=True))
    assert pairs == plain_search(source, target)
    assert (np.diff(mined.scores) <= 0).all()


def test_a_threshold_tuned_on_one_text_finds_the_translations_of_another():
    def mined(seed):
        source, target, gold = texts(seed, 30, 80, 60, 0.2)
        nearest_pairs = mining.mine(source, target)
        pairs = list(
            zip(nearest_pairs.sources.tolist(), nearest_pairs.targets.tolist(), strict=True)
        )
        return nearest_pairs.scores, pairs, gold

    scores, pairs, gold = mined(1)
    threshold = best_threshold(scores, np.array([pair in gold for pair in pairs]), len(gold))
    scores, pairs, gold = mined(2)
    assert len(pairs) > 45  # most sentences have a partner, though only 30 have a translation
    selected = pairs[: int((scores >= threshold).sum())]
    assert pair_scores(selected, gold).f1 > 0.9
    assert pair_scores(pairs, gold).f1 < 0.8


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
        mining.search_chunks(partial(neighbours, target=b, count=300), a)
        for a, b in ((first, second), (second, first))
    ]
    pairs, expected = (
        mining.select_pairs(search.rank_by_margin(*both_directions)),
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

    assert mining.recall(partial(neighbours, target=second, count=4), first, second) == 1
    assert mining.recall(half_search, first, second) == 0.5


def test_more_probes_raise_recall_and_give_the_pairs_of_exact_search(sides):
    pytest.importorskip("faiss", reason="pip install faiss-cpu")
    first, second = sides
    few_probes, many_probes = (mining.build_search(second, probes=n) for n in (1, 16))
    low_recall, high_recall = (
        mining.recall(search, first, second) for search in (few_probes, many_probes)
    )
    assert 0.3 < low_recall < high_recall and high_recall > 0.98
    both_directions = (
        mining.search_chunks(many_probes, first),
        mining.search_chunks(mining.build_search(first, probes=16), second),
    )
    pairs, exact = (
        mining.select_pairs(search.rank_by_margin(*both_directions)),
        mining.mine(first, second),
    )
    approximate_pairs, exact_pairs = (
        {pair for pair in zip(result.sources.tolist(), result.targets.tolist(), strict=True)}
        for result in (pairs, exact)
    )
    assert len(approximate_pairs & exact_pairs) > 0.95 * len(exact_pairs)
    with pytest.raises(ConfigError, match="--index=nonsense"):
        mining.build_search(second, "nonsense")
