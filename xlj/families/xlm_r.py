"""XLM-R, and architectures like it: XLM-R XL, RoBERTa, BERT, DistilBERT, ERNIE-M, and xlj's own
with a relative position bias."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xlj.config import ConfigError, Model
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
from xlj.io.json_file import Record

_TABLES = (EMBEDDINGS, Tensor("embeddings/position", "embeddings.position_embeddings.weight"))
_LAYER = {
    "attention/query": ("attention.self.query", "self_attn.self_attn.q_proj"),
    "attention/key": ("attention.self.key", "self_attn.self_attn.k_proj"),
    "attention/value": ("attention.self.value", "self_attn.self_attn.v_proj"),
    "attention/output": ("attention.output.dense", "self_attn.out_proj"),
    "attention_norm": ("attention.output.LayerNorm", "norm1"),
    "feed_forward/inner": ("intermediate.dense", "linear1"),
    "feed_forward/outer": ("output.dense", "linear2"),
    "feed_forward_norm": ("output.LayerNorm", "norm2"),
}
"""The modules of a layer, by xlj's name: (name in BERT and XLM-R, name in ERNIE-M)."""

_BERT_LAYER = {name: bert for name, (bert, _) in _LAYER.items()}
_ERNIE_M_LAYER = {name: ernie_m for name, (_, ernie_m) in _LAYER.items()}
_XLM_R_XL_NORMS = {
    "attention_norm": "attention.self_attn_layer_norm",
    "feed_forward_norm": "LayerNorm",
}
_ATTENTION = "encoder.layer.{layer}.attention.self"
_POSITION_BIAS = (
    Tensor("position_bias/table", "position_bias.weight"),
    Tensor("layers/attention/gates/kernel", f"{_ATTENTION}.gates.weight"),
    Tensor("layers/attention/gates/scale", f"{_ATTENTION}.gate_scale"),
)
"""Tensors that only models with a relative position bias have (model type xlj, `remote_code`)."""


def _layers(names: Mapping[str, str], folder: str = "encoder.layer") -> Iterator[Tensor]:
    return modules(names, "layers/", f"{folder}.{{layer}}.")


def _heads(
    masked: str, norm: str, bias: str, dense: str, output: str, pooler: str
) -> tuple[Tensor, ...]:
    """Returns the tensors of the head for masked tokens and of all task heads.

    Families differ in the names of the layers of the head for masked tokens and the classification
    head, and of the dense layer of the multiple-choice head. The other names are the same in all
    families.

    Args:
      masked, norm, bias: names of the dense layer, the norm and the bias of the head for masked
        tokens.
      dense, output: names of the two layers of the classification head.
      pooler: name of the dense layer of the multiple-choice head.
    """
    return (
        *module("prediction_head/dense", masked),
        *module("prediction_head/norm", norm),
        Tensor("prediction_head/bias", bias),
        *module("classification_head/dense", dense),
        *module("classification_head/output", output),
        *module("tagging_head/output", "classifier"),
        *module("question_answering_head/output", "qa_outputs"),
        *module("multiple_choice_head/dense", pooler),
        *module("multiple_choice_head/output", "classifier"),
    )


_ROBERTA_HEADS = _heads(
    "lm_head.dense",
    "lm_head.layer_norm",
    "lm_head.bias",
    "classifier.dense",
    "classifier.out_proj",
    "roberta.pooler.dense",
)
_NORM = module("embeddings/norm", "embeddings.LayerNorm")
_BERT_ENCODER = (*_TABLES, TOKEN_TYPE, *_NORM, *_layers(_BERT_LAYER))
_ROBERTA_TENSORS = (*_BERT_ENCODER, *_ROBERTA_HEADS)
_XL_LAYERS = (*_layers(_BERT_LAYER | _XLM_R_XL_NORMS), *module("final_norm", "encoder.LayerNorm"))
_XLM_R_XL_TENSORS = (*_TABLES, TOKEN_TYPE, *_XL_LAYERS, *_ROBERTA_HEADS)
_ROBERTA_COPIES = {"lm_head.decoder.weight": "embeddings/word",
                   "lm_head.decoder.bias": "prediction_head/bias"}  # fmt: skip
_BERT_HEADS = _heads(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.bias",
    "bert.pooler.dense",
    "classifier",
    "bert.pooler.dense",
)
_BERT_TENSORS = (*_BERT_ENCODER, *_BERT_HEADS)
_BERT_COPIES = {"cls.predictions.decoder.weight": "embeddings/word",
                "cls.predictions.decoder.bias": "prediction_head/bias"}  # fmt: skip
_ERNIE_M_NORM = module("embeddings/norm", "embeddings.layer_norm")
_ERNIE_M_TENSORS = (
    *_TABLES,
    *_ERNIE_M_NORM,
    *_layers(_ERNIE_M_LAYER, "encoder.layers"),
    *module("classification_head/dense", "ernie_m.pooler.dense"),
    *module("classification_head/output", "classifier"),
    *module("tagging_head/output", "classifier"),
    *module("question_answering_head/output", "qa_outputs"),
)

_DEFAULTS = {"layer_norm_eps": 1e-12, "initializer_range": 0.02, "hidden_dropout_prob": 0.1,
             "attention_probs_dropout_prob": 0.1, "type_vocab_size": 2}  # fmt: skip
_FIXED = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
_BIAS_KEYS = ("position_bias", "position_buckets", "position_distance", "absolute_positions")
"""Keys of `Model` that the config.json of `XLJ` contains under the same names."""


def _return_always(options: Mapping[str, Any]) -> Callable[[Record, str], Record]:
    return lambda config, where: dict(options)


def _write_options(model: Model) -> Record:
    # vLLM requires position_embedding_type of BERT.
    return {
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }


XLM_R = Architecture(
    "xlm-roberta",
    "roberta",
    _ROBERTA_TENSORS,
    "XLMRoberta",
    _ROBERTA_COPIES,
    BERT_SIZES,
    _DEFAULTS,
    _FIXED,
    read_config=_return_always({"norm": "post"}),
    write_config=_write_options,
    first_position=2,  # the id of `<pad>` in XLM-R is 1
    has_pad_rows=True,
    token_types=1,
    has_pooler=True,
)
XLM_R_XL = dataclasses.replace(
    XLM_R,
    model_type="xlm-roberta-xl",
    tensors=_XLM_R_XL_TENSORS,
    class_prefix="XLMRobertaXL",
    read_config=_return_always({"norm": "pre"}),
)
ROBERTA = dataclasses.replace(XLM_R, model_type="roberta", class_prefix="Roberta")
XLJ = dataclasses.replace(
    XLM_R,
    model_type="xlj",
    # `remote_code` has no class for multiple choice.
    tensors=(
        *(tensor for tensor in _ROBERTA_TENSORS if tensor.head != "multiple_choice_head"),
        *_POSITION_BIAS,
    ),
    class_prefix="Xlj",
    has_pooler=False,
    read_config=lambda config, where: {name: config[name] for name in _BIAS_KEYS},
    write_config=lambda model: (
        _write_options(model) | {name: getattr(model, name) for name in _BIAS_KEYS}
    ),
)
BERT = dataclasses.replace(
    XLM_R,
    model_type="bert",
    prefix="bert",
    tensors=_BERT_TENSORS,
    class_prefix="Bert",
    copies=_BERT_COPIES,
    first_position=0,
    has_pad_rows=False,
    specials={"pad": "pad"},
    read_config=_return_always({}),
    token_types=2,
)
ERNIE_M = dataclasses.replace(
    XLM_R,
    model_type="ernie_m",
    prefix="ernie_m",
    tensors=_ERNIE_M_TENSORS,
    class_prefix="ErnieM",
    copies={},
    has_pad_rows=False,
    defaults=_DEFAULTS | {"layer_norm_eps": 1e-5},
    read_config=_return_always({"token_types": 0}),
    ignored=((r"linear_(start|end)\..*", "part of a task head that xlj does not support"),),
)

_DISTILBERT_LAYER = {
    "attention/query": "attention.q_lin",
    "attention/key": "attention.k_lin",
    "attention/value": "attention.v_lin",
    "attention/output": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "feed_forward/inner": "ffn.lin1",
    "feed_forward/outer": "ffn.lin2",
    "feed_forward_norm": "output_layer_norm",
}
DISTILBERT = Architecture(
    "distilbert",
    "distilbert",
    (
        *_TABLES,
        *_NORM,
        *_layers(_DISTILBERT_LAYER, "transformer.layer"),
        *module("prediction_head/dense", "vocab_transform"),
        *module("prediction_head/norm", "vocab_layer_norm"),
        Tensor("prediction_head/bias", "vocab_projector.bias"),
        # Heads that classify whole rows are not supported, because their activation is ReLU.
        *module("tagging_head/output", "classifier"),
        *module("question_answering_head/output", "qa_outputs"),
    ),
    "DistilBert",
    {"vocab_projector.weight": "embeddings/word"},
    sizes={
        "layers": "n_layers",
        "hidden": "dim",
        "heads": "n_heads",
        "intermediate": "hidden_dim",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "init_std": "initializer_range",
    },
    defaults={
        "n_layers": 6,
        "dim": 768,
        "n_heads": 12,
        "hidden_dim": 3072,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "initializer_range": 0.02,
        "max_position_embeddings": 512,
    },
    fixed={"activation": "gelu", "tie_word_embeddings": True},
    read_config=_return_always({"token_types": 0, "layer_norm_epsilon": 1e-12}),
    write_config=_write_options,
    specials={"pad": "pad"},
    ignored=((r"pre_classifier\..*", "part of a task head that xlj does not support"),),
)
"""Supported for import only. An export has BERT's architecture, with zeros as token type table."""

_BY_MARKERS = {"sentencepiece": XLM_R, "byte_bpe": ROBERTA, "wordpiece": BERT}
"""The architecture of exports without a position bias, by how the vocabulary marks words."""


class XlmR(Family):
    """Encoders like XLM-R: learned positions or a position bias, and ungated layers with biases."""

    architectures = (XLM_R, XLM_R_XL, ROBERTA, BERT, DISTILBERT, ERNIE_M, XLJ)

    def export_as(self, model: Model, markers: str) -> Architecture:
        """Returns an architecture that depends on the vocabulary, position bias and norms."""
        is_plain = model.position_bias == "none" and model.absolute_positions
        architecture = _BY_MARKERS[markers] if is_plain else XLJ
        if model.norm == "post":
            return architecture
        if architecture is not XLM_R:
            raise ConfigError(
                "model.norm=pre: such a model can be exported only if it has a SentencePiece "
                "vocabulary and no position bias"
            )
        return XLM_R_XL
