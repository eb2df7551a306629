"""nDCG, MRR and recall: cases computed by hand, and equality with trec_eval."""

import random
from math import log2

import pytest

from xlj.evaluation.metrics import mean_scores, ranking_scores


def test_scores_by_hand():
    """Grades above 1, documents without grade, ties, unfound documents, lists shorter than k."""
    judgements = {
        "q1": {"a": 1, "b": 3, "c": 0, "d": -1, "unfound": 2},
        "q2": {"a": 0},
        "not run": {"a": 1},
        "q4": {"a": 1},
    }
    run = {
        # By score: x, then d and b (equal scores: the higher id first), then a.
        "q1": {"a": 0.1, "b": 0.5, "d": 0.5, "x": 0.9},
        "q2": {"a": 1.0},
        "not judged": {"a": 1.0},
        "q4": {},
    }
    scores = ranking_scores(run, judgements, (3, 10))
    ideal = 3 + 2 / log2(3)
    zero = {f"{name}@{k}": 0.0 for name in ("ndcg", "mrr", "recall") for k in (3, 10)}
    assert list(scores) == ["q1", "q2", "q4"] and scores["q2"] == scores["q4"] == zero
    assert scores["q1"] == {
        "ndcg@3": pytest.approx(3 / log2(4) / (ideal + 1 / log2(4)), abs=1e-12),
        "mrr@3": 1 / 3,
        "recall@3": 1 / 3,
        "ndcg@10": pytest.approx((3 / log2(4) + 1 / log2(5)) / (ideal + 1 / log2(4)), abs=1e-12),
        "mrr@10": 1 / 3,
        "recall@10": 2 / 3,
    }
    assert ranking_scores({"q": {"a": 0, "b": 1}}, {"q": {"a": 2}}, (1,)) == {
        "q": {"ndcg@1": 0.0, "mrr@1": 0.0, "recall@1": 0.0}
    }
    # The best ranking ends at rank k too; recall counts all relevant documents.
    cut = ranking_scores({"q": {"a": 1.0}}, {"q": {"a": 1, "b": 1}}, (1,))
    assert cut == {"q": {"ndcg@1": 1.0, "mrr@1": 1.0, "recall@1": 0.5}}
    assert mean_scores(scores)["recall@10"] == pytest.approx(2 / 9)


def test_scores_that_are_equal_as_float32_are_ties():
    run = {"q": {"a": 1 + 1e-9, "b": 1.0}}
    assert ranking_scores(run, {"q": {"a": 1}}, (5,))["q"]["mrr@5"] == 0.5


@pytest.mark.parity
def test_scores_equal_trec_eval():
    """Also without judgements or results, with ties, and for ids beyond ASCII."""
    trec = pytest.importorskip("pytrec_eval")
    draw, cutoffs = random.Random(0), (1, 3, 10, 40)
    measures = {"ndcg_cut.1,3,10,40", "recall.1,3,10,40", "recip_rank"}
    for _ in range(200):
        names = [f"{draw.choice('abcé中Z')}{i}" for i in range(draw.randint(1, 30))]
        judgements = {
            f"q{i}": {
                name: draw.choice([-1, 0, 0, 1, 1, 2, 3, 7])
                for name in draw.sample([*names, "u"], draw.randint(1, len(names)))
            }
            for i in range(5)
        }
        run = {
            f"q{i}": {
                name: draw.choice([0.1, 0.3, 0.3 + 1e-9, draw.random()])
                for name in draw.sample(names, draw.randint(0, len(names)))
            }
            for i in range(2, 7)
        }
        expected = trec.RelevanceEvaluator(judgements, measures).evaluate(run)
        scores = ranking_scores(run, judgements, cutoffs)
        assert scores.keys() == expected.keys()
        for query, others in expected.items():
            for k in cutoffs:
                for name, other in (("ndcg", "ndcg_cut"), ("recall", "recall")):
                    assert abs(scores[query][f"{name}@{k}"] - others[f"{other}_{k}"]) < 1e-9
            assert abs(scores[query]["mrr@40"] - others["recip_rank"]) < 1e-9
