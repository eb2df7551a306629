"""Labels of new text come from rows that fit into the model."""

import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import ConfigError, Model
from xlj.config.task import Task
from xlj.data.labelled.examples import Sentences
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.inference import predictor
from xlj.inference.pretrained import Pretrained

LENGTH = 24
MODEL = Model(layers=1, hidden=8, heads=1, intermediate=8, positions=LENGTH + 2)


@pytest.fixture
def make_labeller(vocabulary, monkeypatch):
    """A function that makes a labeller of sentences for a model of `LENGTH` tokens.

    It returns the labeller and the list of the rows that the model gets, with all separators. In
    place of a model, the test computes logits, which select the label `full` for rows without
    padding, else `padded`.
    """

    def make(separators, pairs="together"):
        task, rows = (
            Task(kind="classification", length=LENGTH, labels=("full", "padded"), pairs=pairs),
            [],
        )
        params = {f"{task.effective_kind}_head": {"bias": jnp.zeros(2)}}

        class RecordingPredictor:
            def __init__(self, kind, model, mesh, separators=1, whole=False):
                assert (kind, model, mesh.size) == (task.effective_kind, MODEL, 1) and whole
                self.is_doubled = separators == 2

            def __call__(self, given, tokens, what):
                assert given is params and not what and len(tokens)
                rows.extend(predictor._double_separators(tokens)[0] if self.is_doubled else tokens)
                is_padded = (tokens == PAD).any(1)
                return np.stack([~is_padded, is_padded], 1).astype(np.float32)

        monkeypatch.setattr(predictor, "Predictor", RecordingPredictor)
        pretrained = Pretrained(params, MODEL, vocabulary, task=task, separators=separators)
        return predictor.Labeller(pretrained), rows

    return make


@pytest.mark.parametrize("separators", [1, 2])
def test_the_longest_pair_fills_the_rows_of_training(separators, make_labeller):
    """With a second `</s>` between the sentences, they have room for one token less."""
    made, rows = make_labeller(separators)
    long, short = Sentences(("a b c d e " * 5,) * 2, None, ""), Sentences(("a", "b"), None, "")
    labels = [one["label"] for one in made.stream([long, short])]
    assert labels == ["full", "padded"] and made.truncated == {"examples": 1}
    assert (rows[0] != PAD).sum() == LENGTH
    assert (rows[1] == EOS).sum() == 1 + separators


def test_sentences_that_are_encoded_apart_have_the_head_of_their_kind(make_labeller):
    made, rows = make_labeller(1, pairs="apart")
    (one,) = made.stream([Sentences(("a", "b"), None, "")])
    assert one["label"] == "padded" and (rows[0] == BOS).sum() == 2


def test_predictions_stay_with_their_examples_across_chunks(make_labeller, monkeypatch):
    monkeypatch.setattr(predictor, "_CHUNK", 2)
    made, _ = make_labeller(1)
    long, short = Sentences(("a b c d e " * 5,), None, ""), Sentences(("a",), None, "")
    advances = []
    examples = [long, None, None, short, long, None, None, None, long]
    predictions = list(made.stream(iter(examples), advances.append))
    assert [one and one["label"] for one in predictions] == [
        "full", None, None, "padded", "full", None, None, None, "full",
    ]  # fmt: skip
    assert made.truncated == {"examples": 3} and advances == [2, 2, 2, 2, 1]


def test_a_model_without_a_task_head_is_refused(random_encoder):
    for task, params in (
        (None, ["classification_head/x"]),
        (Task(kind="classification"), ["tagging_head/output"]),
    ):
        with pytest.raises(ConfigError, match="^the model has no task head; expected a run"):
            predictor.task_of(task, params, "")
    with pytest.raises(ConfigError, match="^runs/a: the model has no task head"):
        predictor.task_of(None, [], "runs/a")
    pretrained = Pretrained(
        {"embeddings": jnp.zeros(2)}, MODEL, None, task=Task(kind="classification")
    )
    with pytest.raises(ConfigError, match="^runs/b: the model has no task head"):
        predictor.Labeller(pretrained, "runs/b")
    task = Task(kind="classification", pairs="apart")
    assert predictor.task_of(task, ["pair_classification_head/output/bias"], "") is task
