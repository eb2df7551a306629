"""Regression: rows store scores as the bytes of float32; correlations equal SciPy's."""

import jax
import numpy as np
import pytest

from xlj.config import ConfigError, Model
from xlj.config.task import Task
from xlj.evaluation.metrics import pearson, spearman
from xlj.objectives.supervised import head as heads
from xlj.tasks.regression import RatedText, Regression

KIND = Regression()


def test_scores_are_read_from_tables(tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text("a\tb\t3.25\nc\td\t-\n")
    examples = KIND.read(file, "en", Task(kind="regression"))
    assert examples == [
        RatedText(("a", "b"), 3.25, f"{file}:1"),
        RatedText(("c", "d"), None, f"{file}:2"),
    ]
    assert [example.text_count for example in examples] == [2, 2] and RatedText(
        ("a",), 1, ""
    ).text_count == 1
    assert [example.labels for example in examples] == [(), None]
    file.write_text("-1e30\ta\tb\n")
    columns = Task(kind="regression", columns=("3", "2", "1"))
    assert KIND.read(file, "en", columns) == [RatedText(("b", "a"), -1e30, f"{file}:1")]
    for score in ("3,25", "nan", "-2e30"):
        file.write_text(f"a\tb\t{score}\n")
        with pytest.raises(ConfigError, match=f"a.tsv:1: the score is '{score}'; expected a num"):
            KIND.read(file, "en", Task(kind="regression"))


def test_rows_store_scores_as_float32(vocabulary):
    scores = [3.3, -0.0, 1e-7, None, 5.0]
    examples = [RatedText(("a cat", "a dog"), score, "") for score in scores]
    features = KIND.rows(examples, vocabulary, (), Task(length=16))
    stored = features.labels["score"]
    expected = np.array([score or 0 for score in scores], np.float32)
    assert stored.dtype == np.float32 and stored.tobytes() == expected.tobytes()
    assert features.labels["has_score"].tolist() == [1, 1, 1, 0, 1]


def test_losses_are_squared_errors_of_the_rows_with_a_score(vocabulary):
    """A prediction is correct if the error is at most 0.5; rows without a score do not count."""
    gold, predicted = (3.3, -0.25, None, 1e-3, 5.0), (3.0, 0.25, 0.0, -0.6, 4.0)
    examples = [RatedText(("a cat",), score, "") for score in gold]
    labels = KIND.rows(examples, vocabulary, (), Task(length=16)).labels
    head, scores = KIND.head(), np.array(predicted, np.float32)[:, None]
    losses, correct = head.losses(scores, labels)
    expected = [[(a - (b or 0)) ** 2] for a, b in zip(predicted, gold, strict=True)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert correct[:, 0].tolist() == [True, True, True, False, False]
    assert head.weights(labels).tolist() == [[1], [1], [0], [1], [1]]
    assert head.predict(scores).tolist() == scores[:, 0].tolist()


def test_the_head_reads_the_vector_of_the_first_token_and_has_dropout(monkeypatch):
    calls = []

    def classify(*arguments):
        calls.append(arguments)
        return np.array([[3], [4]])

    head, model, keys = KIND.head(), Model(hidden=2, heads=1), jax.random.split(jax.random.key(0))
    hidden, tokens = np.arange(12, dtype=np.float32).reshape(2, 3, 2), np.zeros((2, 3), int)
    monkeypatch.setattr(heads, "classify", classify)
    assert head.logits("head", model, hidden, tokens, keys).tolist() == [[3], [4]]
    ((*others, vectors, rngs),) = calls
    assert others == ["head", model] and rngs is keys
    assert vectors.tolist() == [[0, 1], [6, 7]]


def test_correlations_equal_those_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 6, 50) / 2, rng.normal(size=50)  # with ties
    second += first
    for xlj_correlation, scipy_correlation in (
        (pearson, stats.pearsonr),
        (spearman, stats.spearmanr),
    ):
        assert xlj_correlation(first, second) == pytest.approx(scipy_correlation(first, second)[0])
        assert xlj_correlation(first, first) == pytest.approx(1) and xlj_correlation(
            first, -first
        ) == pytest.approx(-1)
        assert xlj_correlation([1.0, 1.0], [1.0, 2.0]) == 0
    metrics = KIND.scores(
        [1.0, 2.0, 4.0], [RatedText(("a",), s, "") for s in (0.0, 1.0, 9.0)], "pearson", "en"
    )
    assert (
        list(metrics) == ["pearson", "spearman"] and metrics["spearman"] == 1 > metrics["pearson"]
    )


def test_predictions_are_described_and_the_baseline_is_the_mean():
    examples = [RatedText(("a",), 1.0, ""), RatedText(("b",), 4.0, "")]
    unlabelled = [RatedText(("c",), None, "")]
    assert KIND.majority(examples + unlabelled)(examples) == [2.5, 2.5]
    assert KIND.describe(np.array([[1.5], [2.0]]), None, examples, (), Task()) == [
        {"score": 1.5},
        {"score": 2.0},
    ]
    pair = RatedText(("a", "b"), None, "f:2")
    assert KIND.from_fields(["a", "b"], "f:2") == pair
    assert KIND.from_record({"sentence1": "a", "sentence2": "b", "label": 3}, "f:2") == pair
    assert KIND.to_text([1.5]) == "1.500000\n" and KIND.to_fields({"score": 2}) == ["2.000000"]
