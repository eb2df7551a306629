"""Names that Hugging Face's architectures have for sizes and parameters of our encoder.

One table serves both ways. A parameter of ours is one tensor of theirs, or, in the layers, one a
layer, stacked; kernels are transposed, embeddings of words and positions have their rows elsewhere.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlj.config import SUPERVISED, ConfigError, Model, build
from xlj.io.json_file import Record
from xlj.io.quoting import quoted, shortened
from xlj.models.embeddings import FIRST_POSITION
from xlj.objectives.supervised import head_of


class Tensor(NamedTuple):
    """A parameter of ours under the name that it has in a Hugging Face folder."""

    ours: str  # e.g. layers/attention/query/kernel
    theirs: str  # e.g. encoder.layer.{layer}.attention.self.query.weight

    @property
    def stacked(self) -> bool:
        """Whether there is one tensor of theirs a layer."""
        return self.ours.startswith("layers/")

    @property
    def transposed(self) -> bool:
        """Whether theirs is [out, in] where ours is [in, out]."""
        return self.ours.endswith("kernel")

    @property
    def head(self) -> str:
        """The head that it belongs to, e.g. prediction_head; nothing if it is the encoder's."""
        part = self.ours.partition("/")[0]
        return part if part.endswith("_head") else ""

    @property
    def by_word(self) -> bool:
        """Whether its rows belong to the ids of the vocabulary."""
        return self.ours in ("embeddings/word", "prediction_head/bias")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The names of one family of models. RoBERTa counts positions from the row after that of
    `<pad>`'s id, which is 1 here; `with_pad` tells of others."""

    model_type: str
    prefix: str  # of the encoder's tensors, in a model with a head
    tensors: tuple[Tensor, ...]  # of the encoder, without prefix, and of all heads
    classes: Mapping[str, str]  # those of transformers by their head; `""` is the encoder alone
    copies: Mapping[str, str]  # tensors that must equal another (tied weights), by their name
    first_position: int  # the row of the position table that position 0 reads
    pair_token_types: bool = False  # whether the second sentence of a pair is of another type
    pre_norm: bool = False


def _module(ours: str, theirs: str) -> tuple[Tensor, Tensor]:
    first = "scale" if ours.endswith("norm") else "kernel"
    return Tensor(f"{ours}/{first}", f"{theirs}.weight"), Tensor(f"{ours}/bias", f"{theirs}.bias")


_EMBEDDINGS = (
    Tensor("embeddings/word", "embeddings.word_embeddings.weight"),
    Tensor("embeddings/position", "embeddings.position_embeddings.weight"),
)
TOKEN_TYPE = Tensor("embeddings/token_type", "embeddings.token_type_embeddings.weight")
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
"""Modules of a layer of ours: BERT's and XLM-R's names of them, and ERNIE-M's."""

_BERT_LAYER = {ours: bert for ours, (bert, _) in _LAYER.items()}
_ERNIE_M_LAYER = {ours: ernie_m for ours, (_, ernie_m) in _LAYER.items()}
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
"""Those of xlj's own models with a relative position bias (`remote_code`)."""


def _layers(modules: Mapping[str, str], folder: str = "encoder.layer") -> Iterator[Tensor]:
    for ours, theirs in modules.items():
        yield from _module(f"layers/{ours}", f"{folder}.{{layer}}.{theirs}")


def _heads(masked: str, norm: str, bias: str, dense: str, output: str) -> tuple[Tensor, ...]:
    """Of masked tokens, and of fine-tuned tasks, of which only that of classification differs."""
    return (
        *_module("prediction_head/dense", masked),
        *_module("prediction_head/norm", norm),
        Tensor("prediction_head/bias", bias),
        *_module("classification_head/dense", dense),
        *_module("classification_head/output", output),
        *_module("tagging_head/output", "classifier"),
        *_module("question_answering_head/output", "qa_outputs"),
    )


_CLASSES = {
    "": "",
    "prediction_head": "ForMaskedLM",
    "classification_head": "ForSequenceClassification",
    "tagging_head": "ForTokenClassification",
    "question_answering_head": "ForQuestionAnswering",
}

TASKS = {head_of(kind): kind for kind in SUPERVISED if head_of(kind) in _CLASSES}
"""Kinds of fine-tuned tasks that transformers has a class for, by the name of their head."""


def auto_class(head: str) -> str:
    """The class of transformers that loads a model with this head, whatever its architecture."""
    return f"AutoModel{_CLASSES[head]}"


def _classes(family: str) -> dict[str, str]:
    return {head: family + (ending or "Model") for head, ending in _CLASSES.items()}


_ROBERTA_HEADS = _heads(
    "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "classifier.dense", "classifier.out_proj"
)
_NORM = _module("embeddings/norm", "embeddings.LayerNorm")
_BERT_ENCODER = (*_EMBEDDINGS, TOKEN_TYPE, *_NORM, *_layers(_BERT_LAYER))
_ROBERTA = (*_BERT_ENCODER, *_ROBERTA_HEADS)
_XL_LAYERS = (*_layers(_BERT_LAYER | _XLM_R_XL_NORMS), *_module("final_norm", "encoder.LayerNorm"))
_XLM_R_XL = (*_EMBEDDINGS, TOKEN_TYPE, *_XL_LAYERS, *_ROBERTA_HEADS)
_ROBERTA_COPIES = {"lm_head.decoder.weight": "embeddings/word",
                   "lm_head.decoder.bias": "prediction_head/bias"}  # fmt: skip
_BERT_HEADS = _heads(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.bias",
    "bert.pooler.dense",
    "classifier",
)
_BERT = (*_BERT_ENCODER, *_BERT_HEADS)
_BERT_COPIES = {"cls.predictions.decoder.weight": "embeddings/word",
                "cls.predictions.decoder.bias": "prediction_head/bias"}  # fmt: skip
_ERNIE_M_NORM = _module("embeddings/norm", "embeddings.layer_norm")
_ERNIE_M = (*_EMBEDDINGS, *_ERNIE_M_NORM, *_layers(_ERNIE_M_LAYER, "encoder.layers"))

XLM_R = Architecture(
    "xlm-roberta", "roberta", _ROBERTA, _classes("XLMRoberta"), _ROBERTA_COPIES, FIRST_POSITION
)
XLM_R_XL = Architecture(
    "xlm-roberta-xl", "roberta", _XLM_R_XL, _classes("XLMRobertaXL"), _ROBERTA_COPIES,
    FIRST_POSITION, pre_norm=True,
)  # fmt: skip
ROBERTA = dataclasses.replace(XLM_R, model_type="roberta", classes=_classes("Roberta"))
XLJ = dataclasses.replace(
    XLM_R, model_type="xlj", tensors=(*_ROBERTA, *_POSITION_BIAS), classes=_classes("Xlj")
)
BERT = Architecture("bert", "bert", _BERT, _classes("Bert"), _BERT_COPIES, 0, pair_token_types=True)
ERNIE_M = Architecture("ernie_m", "ernie_m", _ERNIE_M, {"": "ErnieMModel"}, {}, FIRST_POSITION)

OF_MARKERS = {"sentencepiece": XLM_R, "byte_bpe": ROBERTA, "wordpiece": BERT}
"""Those that are written, by how the vocabulary marks words, if nothing else decides."""


def with_pad(architecture: Architecture, pad: int) -> Architecture:
    """The architecture where `<pad>` has the id `pad`, in their numbers."""
    if architecture.prefix != XLM_R.prefix:
        return architecture
    return dataclasses.replace(architecture, first_position=pad + 1)


ARCHITECTURES = {a.model_type: a for a in (XLM_R, XLM_R_XL, ROBERTA, BERT, ERNIE_M, XLJ)}
"""Those that can be read, by `model_type`. XLM-Align, InfoXLM and mBERT have these layouts."""

IGNORED = (
    (r"(.*\.)?position_ids|(.*\.)?token_type_ids", "a constant, not a weight"),
    (r"(.*\.)?pooler\..*", "xlj pools without a layer of its own"),
    (r"cls\.seq_relationship\..*", "the head of BERT's next sentence prediction"),
    (r"(classifier|qa_outputs|score)\..*", "the head of a task that xlj does not have"),
)
"""(regular expression over a tensor's name, why it is not read)."""


def of_config(config: Record, where: str) -> Architecture:
    """The architecture that a config.json names; a ConfigError if xlj cannot read it, or it has
    parts that an encoder of ours does not."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ConfigError(
            f"{where}: model_type is {quoted(name)}; xlj reads {', '.join(ARCHITECTURES)} "
            "(XLM-Align and InfoXLM are xlm-roberta, mBERT is bert)"
        )
    for key, wanted in (
        ("hidden_act", "gelu"),
        ("position_embedding_type", "absolute"),
        ("is_decoder", False),
        ("add_cross_attention", False),
        ("tie_word_embeddings", True),
    ):
        if config.get(key, wanted) not in (wanted, None):
            raise ConfigError(
                f"{where}: {key} is {quoted(config[key])}; xlj's encoder has {wanted!r}"
            )
    pad = config.get("pad_token_id", 1)
    if ARCHITECTURES[name].prefix == XLM_R.prefix and (not isinstance(pad, int) or pad < 0):
        raise ConfigError(f"{where}: pad_token_id is {quoted(pad)}; positions are counted from it")
    classes = config.get("architectures")
    if classes is not None and not isinstance(classes, list):
        raise ConfigError(f"{where}: architectures is {quoted(classes)}, no list of classes")
    return with_pad(ARCHITECTURES[name], pad)


_SIZES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
    "init_std": "initializer_range",
}
"""Keys of `Model` and what config.json calls them."""

_LARGEST = 2**31 - 1  # of any size; XLA counts no further
_BIAS = ("position_bias", "position_buckets", "position_distance", "absolute_positions")
"""Keys of `Model` that are written under the same names, for `XLJ`."""

_DEFAULTS = {"layer_norm_eps": 1e-12, "initializer_range": 0.02, "hidden_dropout_prob": 0.1,
             "attention_probs_dropout_prob": 0.1, "type_vocab_size": 2}  # fmt: skip
"""Values that transformers takes where config.json is silent."""


def model_of(architecture: Architecture, config: Record, where: str) -> Model:
    """The sizes that a config.json gives; a ConfigError if one is missing or impossible."""
    known = {**_DEFAULTS, **config}
    if architecture.model_type == ERNIE_M.model_type:
        known = {**_DEFAULTS, "layer_norm_eps": 1e-5, **config, "type_vocab_size": 0}
    before = FIRST_POSITION - architecture.first_position
    try:
        sizes = {ours: known[theirs] for ours, theirs in _SIZES.items()}
        sizes["positions"] = known["max_position_embeddings"] + before
        sizes["token_types"] = known["type_vocab_size"]
        if architecture.model_type == XLJ.model_type:
            sizes |= {name: known[name] for name in _BIAS}
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{where}: cannot use {error}") from None
    for name, size in sizes.items():
        if isinstance(size, int) and size > _LARGEST:
            raise ConfigError(f"{where}: {_SIZES.get(name, name)} is {quoted(size)}; too large")
    sizes["pair_token_types"] = architecture.pair_token_types
    sizes["norm"] = "pre" if architecture.pre_norm else "post"
    try:
        model = build({"model": sizes}).model
    except ConfigError as error:
        raise ConfigError(f"{where}: {shortened(str(error))}") from None
    if model.hidden % model.heads:
        raise ConfigError(
            f"{where}: hidden_size {model.hidden} is not divisible by num_attention_heads "
            f"{model.heads}"
        )
    return model


_SINGLE_LABEL = "single_label_classification"


def labels_of(config: Record, where: str) -> tuple[str, ...]:
    """The names of classes or tags that a config.json gives, in the order of the head; a
    ConfigError if they are not numbered from 0."""
    names = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}  # what transformers takes
    numbers = [str(number) for number in range(len(names))]
    labels: list[Any] = [names.get(n) for n in numbers] if isinstance(names, dict) else []
    if not all(isinstance(label, str) for label in labels) or len({*labels}) < len(names):
        raise ConfigError(f"{where}: id2label must be distinct names by the numbers from 0")
    return tuple(labels)


def task_head_of(architecture: Architecture, config: Record, tensors: Collection[str]) -> str:
    """The head of a fine-tuned task that a folder has, if its config.json names the class, all of
    its tensors are there, and its labels exclude each other; else nothing."""
    if config.get("problem_type") not in (None, _SINGLE_LABEL):
        return ""
    for head, name in architecture.classes.items():
        whole = [tensor.theirs for tensor in architecture.tensors if tensor.head == head]
        if head in TASKS and name in (config.get("architectures") or ()):
            return head if whole and {*whole} <= {*tensors} else ""
    return ""


def config_of_task(head: str, labels: Sequence[str]) -> Record:
    """The part of config.json about the head of a fine-tuned task and its labels, if it has any."""
    if TASKS.get(head, "question_answering") == "question_answering":
        return {}
    ids = {label: number for number, label in enumerate(labels)}
    only = {"problem_type": _SINGLE_LABEL} if head == head_of("classification") else {}
    return {"id2label": dict(enumerate(labels)), "label2id": ids, **only}


def config_of(architecture: Architecture, model: Model, vocabulary_size: int) -> Record:
    """The config.json of a model of ours."""
    bias = _BIAS if architecture.model_type == XLJ.model_type else ()
    return {
        "model_type": architecture.model_type,
        **{theirs: getattr(model, ours) for ours, theirs in _SIZES.items()},
        "max_position_embeddings": model.positions - FIRST_POSITION + architecture.first_position,
        "type_vocab_size": token_types(architecture, model),
        "vocab_size": vocabulary_size,
        "hidden_act": "gelu",
        "tie_word_embeddings": True,
        "dtype": "float32",
        **{name: getattr(model, name) for name in bias},
    }


def shifted(table: np.ndarray, rows: int) -> np.ndarray:
    """A position table [positions, hidden] with `rows` more before it, all zero; or without its
    first -`rows`. No position reads them."""
    return np.pad(table, ((rows, 0), (0, 0))) if rows > 0 else table[-rows:]


def token_types(architecture: Architecture, model: Model) -> int:
    """Rows of the table of token types that is written: as many as the tokenizer's ids need."""
    return max(model.token_types, 2 if architecture.pair_token_types else 1)
