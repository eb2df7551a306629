"""The architecture and the sizes that a config.json gives, and the config.json of a model."""

from collections.abc import Mapping

import numpy as np

from xlj.config import ConfigError, Model, build
from xlj.interop.architectures.eurobert import EUROBERT
from xlj.interop.architectures.gte import GTE, NEW
from xlj.interop.architectures.modernbert import MODERNBERT
from xlj.interop.architectures.table import Architecture
from xlj.interop.architectures.xlm_r import (
    BERT,
    DISTILBERT,
    ERNIE_M,
    ROBERTA,
    XLJ,
    XLM_R,
    XLM_R_XL,
    with_pad,
)
from xlj.io.json_file import Record
from xlj.io.quoting import quoted, shortened
from xlj.models.embeddings import FIRST_POSITION

MODERN = (MODERNBERT, EUROBERT, GTE)
"""Those that are written for models with rotary positions."""

ARCHITECTURES: Mapping[str, Architecture] = {
    a.model_type: a
    for a in (
        XLM_R,
        XLM_R_XL,
        ROBERTA,
        BERT,
        DISTILBERT,
        ERNIE_M,
        XLJ,
        MODERNBERT,
        EUROBERT,
        GTE,
        NEW,
    )
}
"""Those that can be read, by `model_type`. XLM-Align, InfoXLM and mBERT have these layouts."""

_JINA = (
    "jina-embeddings-v3: its linear layers have five adapters (LoRA), one for each task, and which "
    "of them is meant is chosen with each call; xlj's encoder has none"
)
_GEMMA = (
    "an encoder made of Gemma: it has four norms a layer, whose scales are 1 + w, norms of queries "
    "and keys or capped scores, and scaled embeddings; xlj's encoder has none of these"
)
_SONAR = (
    "SONAR and NLLB are encoders of M2M's kind, with sinusoidal positions, ReLU, and a decoder; "
    "xlj's encoder has none of these"
)
_DEBERTA = (
    "mDeBERTa adds products of queries and keys with embedded distances to attention's scores; "
    "xlj's encoder does not"
)
_NEOBERT = (
    "NeoBERT turns neighbouring dimensions of a head by its rotary positions, where xlj turns "
    "halves, and stores queries, keys and values head by head"
)

REFUSED: Mapping[str, str] = {
    "deberta-v2": _DEBERTA,
    "deberta": _DEBERTA,
    **dict.fromkeys(
        ("gemma", "gemma2", "gemma3", "gemma3_text", "t5gemma", "t5gemma2", "t5gemma2_encoder",
         "embedding_gemma2", "embedding_gemma2_text"),
        _GEMMA,
    ),
    "jina_embeddings_v3": _JINA,
    "neobert": _NEOBERT,
    **dict.fromkeys(("m2m_100", "nllb", "nllb_moe", "nllb-moe", "sonar"), _SONAR),
    "nomic_bert": "nomic-embed-text is English, and its multilingual version a mixture of experts; "
    "xlj's encoder has no experts",
    "ultrabert": "UltraBERT has a window and a base of rotary positions for each layer, and a head "
    "of two layers; xlj's encoder has one window, two bases, and a head of one layer",
}  # fmt: skip
"""Encoders that xlj does not have, by `model_type`, and why."""

_LARGEST = 2**31 - 1  # of any size; XLA counts no further


def of_config(config: Record, where: str) -> Architecture:
    """The architecture that a config.json names; a ConfigError if xlj cannot read it, or it has
    parts that an encoder of ours does not."""
    name = config.get("model_type")
    if "lora_adaptations" in config:  # jina's own code names XLM-R
        name = "jina_embeddings_v3"
    if isinstance(name, str) and name in REFUSED:
        raise ConfigError(f"{where}: model_type is {quoted(name)}; {REFUSED[name]}")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ConfigError(
            f"{where}: model_type is {quoted(name)}; xlj reads {', '.join(ARCHITECTURES)} "
            "(XLM-Align and InfoXLM are xlm-roberta, mBERT is bert, mmBERT is modernbert)"
        )
    architecture = ARCHITECTURES[name]
    for key, wanted in architecture.fixed.items():
        if config.get(key, wanted) not in (wanted, None):
            raise ConfigError(
                f"{where}: {key} is {quoted(config[key])}; xlj's encoder has {wanted!r}"
            )
    pad = config.get("pad_token_id", 1)
    if architecture.prefix == XLM_R.prefix and (not isinstance(pad, int) or pad < 0):
        raise ConfigError(f"{where}: pad_token_id is {quoted(pad)}; positions are counted from it")
    classes = config.get("architectures")
    if classes is not None and not isinstance(classes, list):
        raise ConfigError(f"{where}: architectures is {quoted(classes)}, no list of classes")
    return with_pad(architecture, pad)


def model_of(architecture: Architecture, config: Record, where: str) -> Model:
    """The sizes that a config.json gives; a ConfigError if one is missing or impossible."""
    known = {**architecture.defaults, **config}
    before = FIRST_POSITION - architecture.first_position
    try:
        sizes = {ours: known[theirs] for ours, theirs in architecture.sizes.items()}
        sizes["positions"] = known["max_position_embeddings"] + before
        sizes |= architecture.options(known, where)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{where}: cannot use {error}") from None
    for name, size in sizes.items():
        if isinstance(size, int) and size > _LARGEST:
            theirs = architecture.sizes.get(name, name)
            raise ConfigError(f"{where}: {theirs} is {quoted(size)}; too large")
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


def config_of(architecture: Architecture, model: Model, rows: int) -> Record:
    """The config.json of a model of ours whose tables of words have so many rows."""
    written = {theirs: getattr(model, ours) for ours, theirs in architecture.sizes.items()}
    if "token_types" in architecture.sizes:
        written[architecture.sizes["token_types"]] = token_types(architecture, model)
    return {
        "model_type": architecture.model_type,
        **written,
        "max_position_embeddings": model.positions - FIRST_POSITION + architecture.first_position,
        "vocab_size": rows,
        "dtype": "float32",
        **architecture.config(model),
    }


def shifted(table: np.ndarray, rows: int) -> np.ndarray:
    """A position table [positions, hidden] with `rows` more before it, all zero; or without its
    first -`rows`. No position reads them."""
    return np.pad(table, ((rows, 0), (0, 0))) if rows > 0 else table[-rows:]


def token_types(architecture: Architecture, model: Model) -> int:
    """Rows of the table of token types that is written: as many as the tokenizer's ids need."""
    return max(model.token_types, architecture.token_types)
