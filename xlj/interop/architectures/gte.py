"""The architecture of gte.

Its tensors have the names of transformers, or those of the code on the Hub, which are fused.
Transformers writes the fused tensors too, with another prefix.

Sources: models/gte and conversion_mapping of transformers 5.24, configs of
Alibaba-NLP/gte-multilingual-mlm-base and gte-multilingual-base.
"""

import dataclasses
from collections.abc import Iterator

from xlj.config import Model
from xlj.config.sections import BIASES
from xlj.interop.architectures import rotary_keys
from xlj.interop.architectures.eurobert import PROJECTIONS, halves
from xlj.interop.architectures.modernbert import activation_of, gated
from xlj.interop.architectures.rotary_keys import Rotary
from xlj.interop.architectures.table import (
    BERT_SIZES,
    EMBEDDINGS,
    TOKEN_TYPE,
    Architecture,
    Tensor,
    module,
    modules,
)
from xlj.interop.architectures.task_heads import classes_of
from xlj.io.json_file import Record

_HEADS = ("", "prediction_head", "classification_head", "tagging_head")
_DEFAULTS = {
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.0,
    "hidden_act": "gelu",
    "type_vocab_size": 1,
    "tie_word_embeddings": True,
}

_LAYER, _NEW_LAYER = "layers.{layer}.", "encoder.layer.{layer}."
_EMBEDDINGS = (EMBEDDINGS, TOKEN_TYPE, *module("embeddings/norm", "embeddings.LayerNorm"))
_LAYERS = (
    *modules(PROJECTIONS, "layers/attention/", _LAYER),
    *module("layers/attention_norm", f"{_LAYER}post_attention_layernorm"),
    *halves(_LAYER),
    *module("layers/feed_forward/outer", f"{_LAYER}mlp.down_proj"),
    *module("layers/feed_forward_norm", f"{_LAYER}post_mlp_layernorm"),
)


def _fused() -> Iterator[Tensor]:
    """Yields the fused tensors.

    The rows of `qkv_proj` are query, key and value. The activated half of `up_gate_proj` is last.
    """
    for number, name in enumerate(("query", "key", "value")):
        hf_name = f"{_NEW_LAYER}attention.qkv_proj"
        yield from module(f"layers/attention/{name}", hf_name, hf_share=(number, 3))
    for number in range(2):
        shares = {"xlj_share": (number, 2), "hf_share": (1 - number, 2)}
        hf_name = f"{_NEW_LAYER}mlp.up_gate_proj"
        yield from module("layers/feed_forward/inner", hf_name, **shares)


_NEW_LAYERS = (
    *_fused(),
    *modules(
        {
            "attention/output": "attention.o_proj",
            "attention_norm": "attn_ln",
            "feed_forward/outer": "mlp.down_proj",
            "feed_forward_norm": "mlp_ln",
        },
        "layers/",
        _NEW_LAYER,
    ),
)


def _heads(prefix: str, norm: str) -> tuple[Tensor, ...]:
    return (
        *module("prediction_head/dense", "lm_head.dense"),
        *module("prediction_head/norm", f"lm_head.{norm}"),
        Tensor("prediction_head/word", "lm_head.decoder.weight"),  # if it is not tied
        Tensor("prediction_head/bias", "lm_head.decoder.bias"),
        *module("classification_head/dense", f"{prefix}.pooler.dense"),
        *module("classification_head/output", "classifier"),
        *module("tagging_head/output", "classifier"),
    )


def _options(config: Record, where: str) -> Record:
    return _options_with(config, where, rotary_keys.read(config, where, "rope_theta"))


def _new_options(config: Record, where: str) -> Record:
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    size = hidden / heads if isinstance(hidden, int) and isinstance(heads, int) and heads else 1

    def ntk(rotary: Rotary) -> Rotary:
        return Rotary(rotary.base * rotary.factor, rotary.factor ** (2 / size))

    rotary = rotary_keys.read(config, where, "rope_theta", more={"ntk": ntk})
    return _options_with(config, where, rotary)


def _options_with(config: Record, where: str, rotary: Rotary) -> Record:
    return {
        "family": "gte",
        "absolute_positions": False,
        "feed_forward": gated(config, "hidden_act", where),
        "biases": tuple(name for name in BIASES if name != "inner"),
        "tied": config["tie_word_embeddings"],
        "rotary_base": rotary.base,
        "rotary_factor": rotary.factor,
    }


def _config(model: Model) -> Record:
    return {
        "hidden_act": activation_of(model),
        "tie_word_embeddings": model.tied,
        "rope_parameters": rotary_keys.write(model.rotary_base, model.rotary_factor),
    }


_COPIES = {"lm_head.decoder.weight": "embeddings/word"}

_NATIVE = Architecture(
    "gte",
    "gte",
    (*_EMBEDDINGS, *_LAYERS, *_heads("gte", "layer_norm")),
    classes_of("Gte", _HEADS),
    {"lm_head.decoder.weight": "embeddings/word"},
    first_position=0,
    sizes=BERT_SIZES,
    defaults=_DEFAULTS,
    fixed={},
    options=_options,
    config=_config,
)
_OTHERS = tuple(
    dataclasses.replace(
        _NATIVE,
        prefix=prefix,
        tensors=(*_EMBEDDINGS, *_NEW_LAYERS, *_heads(prefix, "norm")),
        names=f"{prefix}, fused",
    )
    for prefix in ("gte", "new")
)

GTE = dataclasses.replace(_NATIVE, others=_OTHERS)
NEW = dataclasses.replace(
    GTE,
    model_type="new",
    classes=classes_of("New", _HEADS),
    fixed={
        "position_embedding_type": "rope",
        "layer_norm_type": "layer_norm",
        "logn_attention_scale": False,
        "logn_attention_clip1": False,
        "pack_qkv": True,
    },
    options=_new_options,
)
"""Supported for import only. An export uses `GTE` with the same tensor names, which transformers 5
reads without code from the Hub."""
