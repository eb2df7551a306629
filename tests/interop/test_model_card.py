"""The model card describes a model's training only if xlj trained the model."""

import dataclasses

import pytest

from xlj import config
from xlj.interop import model_card, to_hugging_face

PAIRS = "In pretraining, a pair of sentences"
TYPES = "The second sentence had token type 1"


def card(model, vocabulary, step, known=()):
    config_ = dataclasses.asdict(config.Config()) | {"init_from": "some/folder"}
    trained = {"step": step, "config": config_, "languages": ["en"], "tasks": {}}
    exported = to_hugging_face.plan(
        {"prediction_head/bias": None}, model, vocabulary, headless=False
    )
    return model_card.card("name", exported, model, vocabulary, trained=trained, known=known)


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


def test_languages_that_the_model_knew_stay_on_the_card(model, vocabulary, tmp_path):
    text = card(model, vocabulary, step=7, known=("af", "en", "no"))
    (tmp_path / "README.md").write_text(text, "utf-8")
    assert model_card.read_languages(tmp_path) == ("en", "af", "no")
    assert card(model, vocabulary, 7).partition("---\n# ")[0].count("- 'en'") == 1


@pytest.mark.parametrize(
    "front, expected",
    [
        (
            "license: mit\nlanguage:\n- multilingual\n- af\n- 'no'\n- zh-CN\ntags:\n- x\n",
            "af no zh-CN",
        ),
        ("language: en\ntags: [y]\n", "en"),
        ("language: [en, 'de']\n", "en de"),
        ("license: mit\ntags:\n- language\n", ""),
    ],
)
def test_languages_are_read_from_the_front_matter_only(front, expected, tmp_path):
    assert model_card.read_languages(tmp_path) == ()
    body = "# Title\nlanguage:\n- xx\n"
    (tmp_path / "README.md").write_text(f"---\n{front}---\n{body}", "utf-8")
    assert model_card.read_languages(tmp_path) == tuple(expected.split())
    (tmp_path / "README.md").write_text(body, "utf-8")
    assert model_card.read_languages(tmp_path) == ()
