"""The model card describes a model's training only if xlj trained the model."""

import dataclasses

from xlj import config
from xlj.interop import model_card, to_hugging_face

PAIRS = "In pretraining, a pair of sentences"
TYPES = "The second sentence had token type 1"


def card(model, vocabulary, step):
    config_ = dataclasses.asdict(config.Config()) | {"init_from": "some/folder"}
    trained = {"step": step, "config": config_, "languages": ["en"], "tasks": {}}
    exported = to_hugging_face.plan(
        {"prediction_head/bias": None}, model, vocabulary, headless=False
    )
    return model_card.card("name", exported, model, vocabulary, trained=trained)


def test_training_is_described_only_if_xlj_trained_the_model(model, vocabulary):
    text = card(model, vocabulary, step=0)
    assert "xlj did not train it: its weights come from `some/folder`." in text
    assert PAIRS not in text and "## Objectives" not in text
    text = card(model, vocabulary, step=7)
    assert "It was trained with xlj for 7 of 100,000 steps." in text
    assert "Training started from `some/folder`." in text
    assert PAIRS in text and "## Objectives" in text


def test_token_types_that_the_tokenizer_does_not_set_are_mentioned(model, vocabulary):
    typed = dataclasses.replace(model, token_types=2, pair_marks=("types",))
    assert TYPES in card(typed, vocabulary, step=7)
    assert TYPES not in card(model, vocabulary, step=7)
