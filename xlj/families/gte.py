"""gte: Alibaba's multilingual text encoders.

gte has two layouts. In the separate layout, each projection is a tensor. Transformers uses this
layout in memory, and writes it with `save_original_format=False`. The model code on the Hugging
Face Hub uses the fused layout: `qkv_proj` joins query, key and value, and `up_gate_proj` joins the
two halves of the gated feed-forward layer. The prefix of fused tensors is `new` in files from the
Hub, and `gte` in files that transformers writes by default. Exports have the layout of the Hub,
because text-embeddings-inference reads no other layout.

Sources: models/gte and conversion_mapping of transformers 5.24, configs of
Alibaba-NLP/gte-multilingual-mlm-base and gte-multilingual-base.
"""

import dataclasses
from collections.abc import Iterator

from xlj.config import Model
from xlj.config.sections import BIASES
from xlj.families import modern
from xlj.families.interface import (
    BERT_SIZES,
    EMBEDDINGS,
    TOKEN_TYPE,
    Architecture,
    Family,
    Tensor,
    module,
    modules,
)
from xlj.families.modern import Rotary
from xlj.io.json_file import Record

_BIASES = tuple(name for name in BIASES if name != "inner")  # `up_gate_proj` has no bias
_DEFAULTS = {
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.0,
    "hidden_act": "gelu",
    "type_vocab_size": 1,
    "tie_word_embeddings": True,
}

_LAYER, _FUSED_LAYER = "layers.{layer}.", "encoder.layer.{layer}."
_EMBEDDINGS = (EMBEDDINGS, TOKEN_TYPE, *module("embeddings/norm", "embeddings.LayerNorm"))
_LAYERS = (
    *modules(modern.PROJECTIONS, "layers/attention/", _LAYER),
    *module("layers/attention_norm", f"{_LAYER}post_attention_layernorm"),
    *modern.halves(_LAYER),
    *module("layers/feed_forward/outer", f"{_LAYER}mlp.down_proj"),
    *module("layers/feed_forward_norm", f"{_LAYER}post_mlp_layernorm"),
)


def _fused() -> Iterator[Tensor]:
    """Yields the fused tensors of a layer.

    The rows of `qkv_proj` are query, key and value. `up_gate_proj` has the half without activation
    first, then the half with activation; xlj stores them in the reverse order.
    """
    for number, name in enumerate(("query", "key", "value")):
        hf_name = f"{_FUSED_LAYER}attention.qkv_proj"
        yield from module(f"layers/attention/{name}", hf_name, hf_share=(number, 3))
    for half in range(2):
        shares = {"xlj_share": (half, 2), "hf_share": (1 - half, 2)}
        hf_name = f"{_FUSED_LAYER}mlp.up_gate_proj"
        yield from module("layers/feed_forward/inner", hf_name, **shares)


_FUSED_LAYERS = (
    *_fused(),
    *modules(
        {
            "attention/output": "attention.o_proj",
            "attention_norm": "attn_ln",
            "feed_forward/outer": "mlp.down_proj",
            "feed_forward_norm": "mlp_ln",
        },
        "layers/",
        _FUSED_LAYER,
    ),
)


def _head_tensors(prefix: str, norm_name: str) -> tuple[Tensor, ...]:
    """Returns the tensors of the heads for masked tokens, classification and tagging."""
    return (
        *module("prediction_head/dense", "lm_head.dense"),
        *module("prediction_head/norm", f"lm_head.{norm_name}"),
        Tensor(
            "prediction_head/word", "lm_head.decoder.weight"
        ),  # only if tie_word_embeddings is false
        Tensor("prediction_head/bias", "lm_head.decoder.bias"),
        *module("classification_head/dense", f"{prefix}.pooler.dense"),
        *module("classification_head/output", "classifier"),
        *module("tagging_head/output", "classifier"),
    )


def _read_config(config: Record, where: str) -> Record:
    """Returns the options of `Model` for a config.json of transformers."""
    return _model_options(config, where, modern.read_rotary(config, where, "rope_theta"))


def _read_hub_config(config: Record, where: str) -> Record:
    """Returns the options of `Model` for a config.json of the code on the Hub.

    NTK scaling by f in this code multiplies the base by f, and divides the frequencies by
    f^(2 / head size). Source: `NTKScalingRotaryEmbedding` in the code of Alibaba-NLP/new-impl.
    """
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    if isinstance(hidden, int) and isinstance(heads, int) and heads:
        head_size = hidden / heads
    else:
        head_size = 1.0  # invalid sizes are reported after this function

    def ntk(rotary: Rotary) -> Rotary:
        return Rotary(rotary.base * rotary.factor, rotary.factor ** (2 / head_size))

    rotary = modern.read_rotary(config, where, "rope_theta", more={"ntk": ntk})
    return _model_options(config, where, rotary)


def _model_options(config: Record, where: str, rotary: Rotary) -> Record:
    return {
        "feed_forward": modern.gated(config, "hidden_act", where),
        "tied": config["tie_word_embeddings"],
        "rotary_base": rotary.base,
        "rotary_factor": rotary.factor,
    }


def _write_config(model: Model) -> Record:
    return {
        "hidden_act": modern.activation_of(model),
        # text-embeddings-inference requires these two keys.
        "layer_norm_type": "layer_norm",
        "position_embedding_type": "rope",
        "tie_word_embeddings": model.tied,
        "rope_parameters": modern.write_rotary(model.rotary_base, model.rotary_factor),
        # vLLM reads this key. It does not support scaled positions, and then lacks the key.
        "rope_theta": model.rotary_base if model.rotary_factor == 1 else None,
    }


_SEPARATE = Architecture(
    "gte",
    "gte",
    (*_EMBEDDINGS, *_LAYERS, *_head_tensors("gte", "layer_norm")),
    "Gte",
    {"lm_head.decoder.weight": "embeddings/word"},
    sizes=BERT_SIZES,
    defaults=_DEFAULTS,
    fixed={},
    read_config=_read_config,
    write_config=_write_config,
    names="separate",
)
_FUSED, _FUSED_BY_TRANSFORMERS = (
    dataclasses.replace(
        _SEPARATE,
        prefix=prefix,
        tensors=(*_EMBEDDINGS, *_FUSED_LAYERS, *_head_tensors(prefix, "norm")),
        names=f"{prefix}, fused",
    )
    for prefix in ("new", "gte")
)

GTE = dataclasses.replace(_FUSED, others=(_FUSED_BY_TRANSFORMERS, _SEPARATE))
GTE_FROM_HUB = dataclasses.replace(
    GTE,
    model_type="new",
    class_prefix="New",
    fixed={
        "position_embedding_type": "rope",
        "layer_norm_type": "layer_norm",
        "logn_attention_scale": False,
        "logn_attention_clip1": False,
        "pack_qkv": True,
    },
    read_config=_read_hub_config,
)
"""For import only. Exports use `GTE` with the same tensor names, so transformers 5 loads them
without code from the Hub."""


class Gte(Family):
    """gte. Its norms are as in XLM-R, its positions and feed-forward layers as in ModernBERT."""

    options = modern.OPTIONS | {
        "layer_norm_epsilon": 1e-12,
        "biases": _BIASES,
        "feed_forward": "geglu",
        "rotary_base": 160_000.0,
        "token_types": 1,
    }
    architectures = (GTE, GTE_FROM_HUB)
