"""A family sets all of its options, on the command line and in recipes."""

import dataclasses

import pytest

from xlj import config as schema
from xlj.cli import configs
from xlj.config import ConfigError, Model, families
from xlj.config.checks import check_model
from xlj.config.sections import FAMILIES

RECIPE = "configs/xlm_r_base.py:tiny"


def loaded(*overrides):
    return configs.load(RECIPE, [f"--config.model.{each}" for each in overrides], schema).model


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_sets_all_of_its_options(family):
    wanted = families.options_of(family)
    assert {name: getattr(loaded(f"family={family}"), name) for name in wanted} == wanted
    config = schema.default()
    families.set_family(config, family)
    model = Model(**{name: config.model[name] for name in wanted})
    assert {name: getattr(model, name) for name in wanted} == wanted


def test_options_beside_a_family_are_the_user_s_in_any_order():
    changes = ("norm_type=layer", "biases=output,vocabulary", "local_attention=0")
    for overrides in (("family=modernbert", *changes), (*changes, "family=modernbert")):
        model = loaded(*overrides)
        assert (model.norm_type, model.biases) == ("layer", ("output", "vocabulary"))
        assert model.norm == "embeddings" and model.local_attention == 0


def test_the_options_of_xlm_r_are_the_defaults():
    wanted = families.options_of("xlm_r")
    assert wanted == {name: getattr(Model(), name) for name in wanted}
    model = loaded("family=modernbert", "family=xlm_r")
    assert {name: getattr(model, name) for name in wanted} == wanted


def test_a_family_that_is_a_name_alone_is_refused():
    with pytest.raises(
        ConfigError, match="other options .* are those of XLM-R; .*set_family.config, 'gte'"
    ):
        check_model(Model(family="gte"))


def test_an_unknown_family_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match="model.family=bert: the families are xlm_r, modernbert"):
        loaded("family=bert")


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
        ({"biases": "outputs"}, "model.biases=outputs: the names are attention, output, inner"),
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
        loaded(*(f"{name}={value}" for name, value in options.items()))


def test_heads_share_keys_and_values_by_groups():
    assert Model().groups == 12 and dataclasses.replace(Model(), key_value_heads=4).groups == 4
