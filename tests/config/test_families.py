"""model.family sets all options of a model family, on the command line and in recipes."""

import dataclasses

import pytest

from xlj import config as schema
from xlj.cli import configs
from xlj.config import ConfigError, Model, families
from xlj.config.checks import check_model

RECIPE = "configs/xlm_r_base.py:tiny"


def load_model(*overrides):
    flags = [f"--config.model.{override}" for override in overrides]
    return configs.load(RECIPE, flags, schema).model


@pytest.mark.parametrize("family", families.registered_families())
def test_a_family_sets_all_of_its_options(family):
    expected = families.options_of(family)
    assert {name: getattr(load_model(f"family={family}"), name) for name in expected} == expected
    config = schema.default()
    families.set_family(config, family)
    model = Model(**{name: config.model[name] for name in expected})
    assert {name: getattr(model, name) for name in expected} == expected


def test_explicit_options_override_those_of_the_family_in_any_order():
    changes = ("norm_type=layer", "biases=output,vocabulary", "local_attention=0")
    for overrides in (("family=modernbert", *changes), (*changes, "family=modernbert")):
        model = load_model(*overrides)
        assert (model.norm_type, model.biases) == ("layer", ("output", "vocabulary"))
        assert model.norm == "embeddings" and model.local_attention == 0


def test_the_options_of_xlm_r_are_the_defaults():
    expected = families.options_of("xlm_r")
    assert expected == {name: getattr(Model(), name) for name in expected}
    model = load_model("family=modernbert", "family=xlm_r")
    assert {name: getattr(model, name) for name in expected} == expected


def test_a_family_name_without_the_options_of_the_family_is_refused():
    with pytest.raises(
        ConfigError, match="other options .* are those of XLM-R; .*set_family.config, 'gte'"
    ):
        check_model(Model(family="gte"))


def test_the_error_for_an_unknown_family_lists_the_families():
    with pytest.raises(ConfigError, match="model.family=bert: the families are xlm_r, modernbert"):
        load_model("family=bert")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"rotary_base": 10.0}, "set model.absolute_positions=False"),
        ({"family": "eurobert", "heads": 128}, "heads of an odd size"),
        ({"family": "eurobert", "tied": True}, "the masked-token head without parameters"),
        ({"key_value_heads": 3}, "not divisible by model.key_value_heads=3"),
        (
            {"local_attention": 8, "full_layers": "0,2"},
            "there is no layer 2; the layers are 0 to 1",
        ),
        ({"local_attention": 8, "full_layers": "first"}, "there is no layer first"),
        ({"local_attention": 8, "full_layers": "01"}, "there is no layer 01"),
        ({"local_attention": 1}, "a token attends only to itself; set"),
        ({"local_attention": 8, "rotary_local_base": 9.0}, "because model.rotary_base is 0"),
        ({"biases": "outputs"}, "outer, prediction, vocabulary; did you mean output?"),
        ({"pair_marks": "type"}, "model.pair_marks=type: the names are types, positions"),
        ({"pair_marks": "types"}, "model.pair_marks=types needs model.token_types=2"),
        (
            {"pair_marks": "positions", "absolute_positions": False, "position_bias": "t5"},
            "model.pair_marks=positions needs learned or rotary positions",
        ),
        (
            {"dropout_parts": "head"},
            "model.dropout_parts=head: the names are embeddings, attention",
        ),
        ({"full_attention_every": 2}, "has no effect, because model.local_attention is 0"),
        ({"rotary_factor": 2.0}, "has no effect, because model.rotary_base is 0"),
        ({"middle_norm": True}, "has no effect, because model.norm=post has no norm at the end"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, message):
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        load_model(*(f"{name}={value}" for name, value in options.items()))


def test_the_number_of_key_value_groups_is_key_value_heads_or_all_heads():
    assert Model().groups == 12 and dataclasses.replace(Model(), key_value_heads=4).groups == 4


@pytest.mark.parametrize(
    "recipe, marks",
    [
        ("quickstart.py:modern", ()),  # ModernBERT has no token types
        ("xlm.py:modern", ("positions",)),
        ("eurobert_210m.py", ("separator",)),
        ("eurobert_210m.py:tiny", ()),  # a trained vocabulary has no separator
    ],
)
def test_variants_remove_the_pair_marks_that_a_model_cannot_have(recipe, marks):
    assert configs.load(f"configs/{recipe}", [], schema).model.pair_marks == marks
