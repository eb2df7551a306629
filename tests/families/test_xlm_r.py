"""The architecture of an export depends on the vocabulary, the position bias and the norms."""

import pytest

from xlj.config import ConfigError, Model
from xlj.families.xlm_r import BERT, XLM_R, XlmR

GATED = {"position_bias": "gated", "absolute_positions": False}


@pytest.mark.parametrize(
    "options, markers, model_type",
    [
        ({}, "sentencepiece", "xlm-roberta"),
        ({}, "byte_bpe", "roberta"),
        ({}, "wordpiece", "bert"),
        (GATED, "sentencepiece", "xlj"),
        ({"position_bias": "t5"}, "wordpiece", "xlj"),
        ({"norm": "pre"}, "sentencepiece", "xlm-roberta-xl"),
    ],
)
def test_an_export_has_the_architecture_of_its_model_and_vocabulary(options, markers, model_type):
    assert XlmR().export_as(Model(**options), markers).model_type == model_type


@pytest.mark.parametrize("options, markers", [({}, "byte_bpe"), (GATED, "sentencepiece")])
def test_norms_before_the_sub_layers_need_the_architecture_of_xlm_r_xl(options, markers):
    with pytest.raises(ConfigError, match="model.norm=pre: such a model can be exported only if"):
        XlmR().export_as(Model(norm="pre", **options), markers)


def test_exported_token_types_are_as_many_as_the_tokenizer_of_the_architecture_has():
    assert [a.type_rows(Model()) for a in (XLM_R, BERT)] == [1, 2]
    assert BERT.type_rows(Model(token_types=3)) == 3
    assert XLM_R.with_pad(5).first_position == 6 and BERT.with_pad(5).first_position == 0
