"""Mining finds translations first, and uses no sentence twice."""

import numpy as np
import pytest

from xlj.evaluation.metrics.pairs import best_threshold, pair_scores
from xlj.retrieval import mining


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
