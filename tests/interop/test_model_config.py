"""Config keys of modern models (transformers 4 and 5) are read, or an error names them."""

import dataclasses

import pytest

from xlj import families
from xlj.config import ConfigError, Model
from xlj.interop import model_config

SIZES = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
FULL = {"rope_type": "default", "rope_theta": 160000.0}
LOCAL = {"rope_type": "default", "rope_theta": 10000.0}
DOUBLED = {"rope_type": "linear", "rope_theta": 160000.0, "factor": 2.0}
OLD = {
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "global_attn_every_n_layers": 3,
}
NEW = {
    "rope_parameters": {"full_attention": FULL, "sliding_attention": LOCAL},
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
}
BASES = {
    "modernbert": {"local_attention": 128, **OLD},
    "eurobert": {"rope_theta": 250000, "num_key_value_heads": 1},
    "gte": {"rope_parameters": FULL},
    "new": {"rope_theta": 20000, "rope_scaling": {"type": "ntk", "factor": 8.0}},
}
EXPECTED = {
    "modernbert": Model(
        family="modernbert", layers=4, hidden=128, heads=2, intermediate=48, positions=42,
        norm="embeddings", norm_type="unbiased", layer_norm_epsilon=1e-5, feed_forward="geglu",
        biases=("vocabulary",), absolute_positions=False, rotary_base=160000.0,
        rotary_local_base=10000.0, local_attention=128, full_attention_every=3, dropout=0.0,
        dropout_parts=("attention",), attention_dropout=0.0, task_head="gelu_norm",
    ),
    "eurobert": Model(
        family="eurobert", layers=4, hidden=128, heads=2, intermediate=48, positions=42,
        norm="pre", norm_type="rms", layer_norm_epsilon=1e-5, feed_forward="swiglu", biases=(),
        absolute_positions=False, rotary_base=250000.0, key_value_heads=1, prediction="linear",
        tied=False, dropout=0.0, attention_dropout=0.0, task_head="gelu", task_pooling="late",
    ),
    "gte": Model(
        family="gte", layers=4, hidden=128, heads=2, intermediate=48, positions=42,
        layer_norm_epsilon=1e-12, feed_forward="geglu", absolute_positions=False,
        biases=("attention", "output", "outer", "prediction", "vocabulary"), token_types=1,
        rotary_base=160000.0, attention_dropout=0.0,
    ),
}  # fmt: skip
EXPECTED["new"] = dataclasses.replace(EXPECTED["gte"], rotary_factor=8 ** (1 / 32))


def read_model(model_type, **changes):
    """Returns the model of a config.json; None removes a key."""
    config = {"model_type": model_type, **SIZES, **BASES[model_type]} | changes
    config = {key: value for key, value in config.items() if value is not None}
    architecture = model_config.find_architecture(config, "config.json")
    return model_config.read_model(architecture, config, "config.json")


@pytest.mark.parametrize("model_type", BASES)
def test_options_are_read(model_type):
    assert read_model(model_type) == EXPECTED[model_type]


def test_old_and_new_keys_are_equivalent():
    none = dict.fromkeys(OLD)
    for keys in (OLD, none | NEW, OLD | NEW, OLD | {"layer_types": NEW["layer_types"]}):
        assert read_model("modernbert", **keys) == EXPECTED["modernbert"]
    linear = FULL | {"rope_type": "linear", "factor": 2}
    expected = dataclasses.replace(EXPECTED["gte"], rotary_factor=2.0)
    assert read_model("gte", rope_parameters=linear) == expected
    old = {"rope_theta": 160000, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert read_model("gte", rope_parameters=None, **old) == expected
    assert read_model("gte", **old, rope_parameters=linear) == expected
    for new_key, old_key in (("rope_type", "type"), ("type", "rope_type")):
        parameters = {new_key: "linear", "rope_theta": 160000, "factor": 2}
        scaling = {"rope_scaling": {old_key: "linear", "factor": 2}}
        assert read_model("gte", rope_parameters=parameters) == expected
        assert read_model("gte", rope_parameters=None, rope_theta=160000, **scaling) == expected
    unset = FULL | {"partial_rotary_factor": None, "mixed_b": None}
    assert read_model("gte", rope_parameters=unset) == EXPECTED["gte"]


def test_the_period_of_layers_in_few_layers_is_that_of_the_released_models():
    """In these lists, other periods than 3 fit too."""
    expected = dataclasses.replace(EXPECTED["modernbert"], layers=2)
    types = {"global_attn_every_n_layers": None, "layer_types": NEW["layer_types"][:2]}
    assert read_model("modernbert", num_hidden_layers=2, **types) == expected


@pytest.mark.parametrize(
    "model_type, keys, options",
    [
        ("modernbert", {"hidden_activation": "silu"}, {"feed_forward": "swiglu"}),
        ("modernbert", {"norm_bias": True, "norm_eps": 1e-6},
         {"norm_type": "layer", "layer_norm_epsilon": 1e-6}),
        ("modernbert", {"attention_bias": True, "mlp_bias": True, "decoder_bias": False},
         {"biases": ("attention", "output", "inner", "outer")}),
        ("modernbert", {"classifier_bias": True}, {"biases": ("prediction", "vocabulary")}),
        ("modernbert", {"tie_word_embeddings": False}, {"tied": False}),
        ("modernbert", {"global_attn_every_n_layers": 1, "local_rope_theta": None},
         {"local_attention": 0, "full_attention_every": 3, "rotary_local_base": 0.0}),
        ("modernbert", {"global_attn_every_n_layers": None,
                        "layer_types": [*NEW["layer_types"][1:], "full_attention"]},
         {"full_layers": ("2", "3")}),
        ("modernbert", {"attention_dropout": 0.1}, {"attention_dropout": 0.1, "dropout": 0.1}),
        ("modernbert", {"local_attention": 2}, {"local_attention": 2}),
        ("eurobert", {"num_key_value_heads": 2}, {"key_value_heads": 0}),
        ("eurobert", {"num_key_value_heads": None}, {"key_value_heads": 0}),
        ("eurobert", {"attention_bias": True}, {"biases": ("attention", "output")}),
        ("eurobert", {"mlp_bias": True}, {"biases": ("inner", "outer", "vocabulary")}),
        ("eurobert", {"tie_word_embeddings": True, "hidden_act": "gelu", "head_dim": 64},
         {"tied": True, "feed_forward": "geglu"}),
        ("gte", {"type_vocab_size": 0, "layer_norm_eps": 1e-5},
         {"token_types": 0, "layer_norm_epsilon": 1e-5}),
        ("gte", {"tie_word_embeddings": False, "hidden_act": "silu"},
         {"tied": False, "feed_forward": "swiglu"}),
        ("new", {"rope_theta": 160000, "rope_scaling": None}, {"rotary_factor": 1.0}),
    ],
)  # fmt: skip
def test_optional_keys_change_the_model(model_type, keys, options):
    assert read_model(model_type, **keys) == dataclasses.replace(EXPECTED[model_type], **options)


@pytest.mark.parametrize(
    "model_type, keys, message",
    [
        ("modernbert", {"global_rope_theta": None},
         r"set rope_parameters\.full_attention\.rope_theta or global_rope_theta to"),
        ("modernbert", {"local_rope_theta": None},
         r"set rope_parameters\.sliding_attention\.rope_theta or local_rope_theta to"),
        ("modernbert", {"rope_parameters": {"full_attention": FULL, "sliding_attention": FULL}},
         r"sliding_attention\.rope_theta is 160000\.0, but local_rope_theta is 10000\.0"),
        ("modernbert", {"rope_parameters": FULL | {"rope_theta": 1.0}, "global_rope_theta": None},
         r"set rope_parameters\.full_attention\.rope_theta or global_rope_theta"),
        ("modernbert", {"global_attn_every_n_layers": None}, "expected layer_types or global_attn"),
        ("modernbert", {"global_attn_every_n_layers": 2, "layer_types": NEW["layer_types"]},
         r"layer_types is \['full.*, but global_attn_every_n_layers is 2"),
        ("modernbert", {"layer_types": ["full_attention"]},
         r"layer_types must be a list of 4 \(num_hidden"),
        ("modernbert", {"global_attn_every_n_layers": None,
                        "layer_types": ["sliding_attention"] * 4}, "layer_types has no full_att"),
        ("modernbert", {"global_attn_every_n_layers": None,
                        "layer_types": ["full_attention", "chunked_attention"] * 2},
         r"layer_types must be a list of 4 \(num_hidden_layers\) values full_attention or sliding"),
        ("modernbert", {"local_attention": None}, "local_attention is None; expected the width"),
        ("modernbert", {"local_attention": 1}, "local_attention is 1; expected the width"),
        ("modernbert", {"global_attn_every_n_layers": 0}, "every_n_layers is 0; expected at least"),
        ("modernbert", {"num_hidden_layers": 0}, "num_hidden_layers is 0; expected at least 1"),
        ("modernbert", {"rope_parameters": NEW["rope_parameters"] | {"full_attention": DOUBLED}},
         r"the factor 2\.0 for full_attention and 1\.0 for sliding_attention"),
        ("modernbert", {"rope_parameters": {"full_attention": FULL, "sliding_attention":
                                            DOUBLED | {"rope_theta": 10000.0}}},
         r"the factor 1\.0 for full_attention and 2\.0 for sliding_attention"),
        ("modernbert", {"classifier_activation": "relu"}, "classifier_activation is 'relu'"),
        ("modernbert", {"hidden_activation": "relu"},
         "hidden_activation is 'relu'; xlj supports the activations"),
        ("modernbert", {"attention_bias": 1}, "attention_bias is 1; expected true or false"),
        ("modernbert", {"rope_scaling": {"type": "yarn", "factor": 2}},
         r"rope_scaling\.type is 'yarn'; xlj's encoder supports default, linear only"),
        ("eurobert", {"rope_theta": None}, r"set rope_parameters\.rope_theta or rope_theta"),
        ("eurobert", {"rope_parameters": FULL},
         r"rope_parameters\.rope_theta is 160000\.0, but rope_theta is 250000"),
        ("eurobert", {"rope_theta": True},
         "the base of rope_parameters is True; expected a number above 0"),
        ("eurobert", {"rope_theta": 0}, "the base of rope_parameters is 0; expected a number"),
        ("eurobert", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ("gte", {"rope_parameters": FULL | {"partial_rotary_factor": 0.5}},
         r"rope_parameters\.partial_rotary_factor is 0\.5"),
        ("modernbert", {"classifier_pooling": "late"},
         "classifier_pooling is 'late'; expected cls or mean"),
        ("eurobert", {"classifier_pooling": "cls"},
         "classifier_pooling is 'cls'; expected bos or mean or late"),
        ("eurobert", {"classifier_pooling": "bos", "clf_pooling": "late"},
         "classifier_pooling is 'bos', but clf_pooling is 'late'; remove the key"),
        ("eurobert", {"head_dim": 32}, "head_dim is 32; xlj's encoder supports hidden_size /"),
        ("eurobert", {"head_dim": 128}, "head_dim is 128; xlj's encoder supports hidden_size /"),
        ("gte", {"rope_parameters": {"rope_type": "ntk", "rope_theta": 2e4, "factor": 8}},
         r"rope_parameters\.rope_type is 'ntk'; xlj's encoder supports default, linear only"),
        ("gte", {"rope_parameters": FULL | {"rope_type": "linear"}}, "the factor of .* is None"),
        ("gte", {"rope_parameters": "x"}, "rope_parameters is 'x'; expected an object"),
        ("gte", {"rope_scaling": []}, r"rope_scaling is \[\]; expected an object"),
        ("gte", {"rope_parameters": DOUBLED, "rope_scaling": {"factor": 4.0}},
         r"rope_parameters\.factor is 2\.0, but rope_scaling\.factor is 4\.0"),
        ("modernbert", {"rope_parameters": [1]},
         r"rope_parameters\.full_attention is \[1\]; expected an object"),
        ("gte", {"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new'"),
        ("gte", {"rope_scaling": {"type": "linear", "factor": 2}},
         r"rope_type is 'default', but rope_scaling\.type is 'linear'"),
        ("new", {"rope_scaling": {"type": "ntk", "factor": 8, "mixed_b": 0.5}},
         r"rope_scaling\.mixed_b is 0\.5"),
        ("new", {"position_embedding_type": "absolute"}, "position_embedding_type is 'absolute'"),
        ("new", {"logn_attention_scale": True}, "logn_attention_scale is True"),
        ("new", {"logn_attention_clip1": True}, "logn_attention_clip1 is True"),
        ("new", {"layer_norm_type": "rms_norm"}, "layer_norm_type is 'rms_norm'"),
        ("new", {"pack_qkv": False}, "pack_qkv is False"),
        ("new", {"hidden_size": "128"}, r"model\.hidden is '128' \(str\)"),
        ("new", {"num_attention_heads": 0}, r"model\.heads is 0; it must be"),
    ],
)  # fmt: skip
def test_contradicting_and_missing_keys_are_refused(model_type, keys, message):
    with pytest.raises(ConfigError, match=f"^config.json: .*{message}"):
        read_model(model_type, **keys)


@pytest.mark.parametrize(
    "config, message",
    [
        ({"model_type": "deberta-v2"}, "mDeBERTa adds products"),
        ({"model_type": "gemma3_text"}, "encoders based on Gemma"),
        ({"model_type": "t5gemma"}, "encoders based on Gemma"),
        ({"model_type": "embedding_gemma2"}, "encoders based on Gemma"),
        ({"model_type": "jina_embeddings_v3"}, "jina-embeddings-v3 has .* adapters"),
        ({"model_type": "xlm-roberta", "lora_adaptations": ["text-matching"]},
         "jina-embeddings-v3 has .* adapters"),
        ({"model_type": "neobert"}, "NeoBERT's rotary positions rotate neighbouring dimensions"),
        ({"model_type": "m2m_100"}, "SONAR and NLLB"),
        ({"model_type": "nomic_bert"}, ".* mixture of experts"),
        ({"model_type": "ultrabert"}, "UltraBERT has a window"),
    ],
)  # fmt: skip
def test_unsupported_encoders_are_refused_with_a_reason(config, message):
    with pytest.raises(ConfigError, match=f"^config.json: model_type is '.*'; {message}"):
        model_config.find_architecture(config, "config.json")


UNUSUAL = {
    "modernbert": {"tied": False, "feed_forward": "swiglu", "norm_type": "layer",
                   "layer_norm_epsilon": 1e-6, "local_attention": 6, "dropout": 0.2,
                   "attention_dropout": 0.2},
    "eurobert": {"tied": True, "feed_forward": "geglu", "key_value_heads": 0,
                 "biases": ("attention", "output"), "layer_norm_epsilon": 1e-6},
    "gte": {"tied": False, "feed_forward": "swiglu", "token_types": 0, "dropout": 0.2,
            "layer_norm_epsilon": 1e-6},
}  # fmt: skip
"""Options that differ from those of released models."""


@pytest.mark.parametrize("model_type", ["modernbert", "eurobert", "gte"])
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_written_configs_are_read_as_the_same_model(model_type, factor):
    expected = dataclasses.replace(EXPECTED[model_type], rotary_factor=factor)
    if factor != 1:
        expected = dataclasses.replace(expected, **UNUSUAL[model_type])
    if model_type == "modernbert":
        expected = dataclasses.replace(expected, full_layers=("1", "2"), biases=("inner", "outer"))
    architecture = families.architectures()[model_type]
    config = model_config.make_config(architecture, expected, 50)
    assert config["model_type"] == model_type and config["vocab_size"] == 50
    assert model_config.read_model(architecture, config, "config.json") == expected


def test_keys_of_transformers_4_are_written_only_if_they_express_the_model():
    """If the keys of transformers 4 cannot express a ModernBERT model, they are null."""
    architecture = families.architectures()["modernbert"]
    config = model_config.make_config(architecture, EXPECTED["modernbert"], 50)
    assert {key: config[key] for key in OLD} == OLD
    odd = dataclasses.replace(EXPECTED["modernbert"], full_layers=("1",), rotary_factor=2.0)
    config = model_config.make_config(architecture, odd, 50)
    assert {key: config[key] for key in OLD} == dict.fromkeys(OLD)


@pytest.mark.parametrize(
    "factor, scaling",
    [(1.0, None), (2.0, {"rope_type": "linear", "rope_theta": 250000.0, "factor": 2.0})],
)
def test_eurobert_has_the_keys_of_transformers_4(factor, scaling):
    """The test removes the new key, since an import does not need the old keys beside it."""
    model = dataclasses.replace(EXPECTED["eurobert"], rotary_factor=factor)
    architecture = families.architectures()["eurobert"]
    config = model_config.make_config(architecture, model, 50)
    del config["rope_parameters"]
    assert config["rope_theta"] == 250000 and config["rope_scaling"] == scaling
    assert model_config.read_model(architecture, config, "config.json") == model
    without_groups = dataclasses.replace(model, key_value_heads=0)
    assert model_config.make_config(architecture, without_groups, 50)["num_key_value_heads"] == 2


def test_modernbert_has_both_bases_and_all_dropout_rates():
    """An import does not read these keys, or does not need them."""
    architecture = families.architectures()["modernbert"]
    one_base = dataclasses.replace(EXPECTED["modernbert"], rotary_local_base=0.0)
    config = model_config.make_config(architecture, one_base, 50)
    assert config["rope_parameters"] == {"full_attention": FULL, "sliding_attention": FULL}
    assert config["global_rope_theta"] == config["local_rope_theta"] == 160000
    for part, key in (("embeddings", "embedding_dropout"), ("feed_forward", "mlp_dropout")):
        model = dataclasses.replace(one_base, dropout=0.1, dropout_parts=(part,))
        config = model_config.make_config(architecture, model, 50)
        rates = {name: config[name] for name in ("embedding_dropout", "mlp_dropout")}
        assert rates == {"embedding_dropout": 0.0, "mlp_dropout": 0.0} | {key: 0.1}
