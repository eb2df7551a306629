"""Reads architecture and sizes from a config.json, and makes the config.json of a model."""

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
"""The architectures that exports of models with rotary positions use."""

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
"""The architectures that can be read, by `model_type`. XLM-Align and InfoXLM have XLM-R's layout,
mBERT has BERT's."""

_JINA = (
    "jina-embeddings-v3 has five adapters (LoRA) in its linear layers, one for each task, and each "
    "call selects one; xlj's encoder has no adapters"
)
_GEMMA = (
    "encoders based on Gemma have four norms per layer with scales 1 + w, norms of queries and "
    "keys or capped attention scores, and scaled embeddings; xlj's encoder has none of these"
)
_SONAR = (
    "SONAR and NLLB are encoders like M2M's, with sinusoidal positions, ReLU, and a decoder; xlj's "
    "encoder has none of these"
)
_DEBERTA = (
    "mDeBERTa adds products of queries and keys with embedded distances to the attention scores; "
    "xlj's encoder does not"
)
_NEOBERT = (
    "NeoBERT's rotary positions rotate neighbouring dimensions of a head, and it stores queries, "
    "keys and values head by head; xlj's encoder rotates the two halves of a head"
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
    "nomic_bert": "nomic-embed-text is English, and its multilingual version is a mixture of "
    "experts; xlj's encoder has no experts",
    "ultrabert": "UltraBERT has a window and a rotary base per layer, and a head of two layers; "
    "xlj's encoder has one window, two rotary bases, and a head of one layer",
}  # fmt: skip
"""The reason why xlj does not support an encoder, by `model_type`."""

_LARGEST = 2**31 - 1  # the largest size that XLA supports


def of_config(config: Record, where: str) -> Architecture:
    """Returns the architecture that a config.json names.

    Args:
      where: the path of the config.json, for errors.

    Raises:
      ConfigError: if xlj does not support the architecture or one of its options.
    """
    name = config.get("model_type")
    if "lora_adaptations" in config:  # jina's config.json names XLM-R
        name = "jina_embeddings_v3"
    if isinstance(name, str) and name in REFUSED:
        raise ConfigError(f"{where}: model_type is {quoted(name)}; {REFUSED[name]}")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ConfigError(
            f"{where}: model_type is {quoted(name)}; xlj reads {', '.join(ARCHITECTURES)} "
            "(XLM-Align and InfoXLM are xlm-roberta, mBERT is bert, mmBERT is modernbert)"
        )
    architecture = ARCHITECTURES[name]
    for key, supported in architecture.fixed.items():
        if config.get(key, supported) not in (supported, None):
            raise ConfigError(
                f"{where}: {key} is {quoted(config[key])}; xlj's encoder has {supported!r} only"
            )
    pad = config.get("pad_token_id", 1)
    if architecture.prefix == XLM_R.prefix and (not isinstance(pad, int) or pad < 0):
        raise ConfigError(
            f"{where}: pad_token_id is {quoted(pad)}; expected an id, from which positions are "
            "counted"
        )
    classes = config.get("architectures")
    if classes is not None and not isinstance(classes, list):
        raise ConfigError(
            f"{where}: architectures is {quoted(classes)}; expected a list of classes"
        )
    return with_pad(architecture, pad)


def model_of(architecture: Architecture, config: Record, where: str) -> Model:
    """Returns the model that a config.json describes.

    Raises:
      ConfigError: if a key is missing, or a value is not supported.
    """
    known = {**architecture.defaults, **config}
    before = FIRST_POSITION - architecture.first_position
    try:
        sizes = {key: known[hf_key] for key, hf_key in architecture.sizes.items()}
        positions = known["max_position_embeddings"]
        if not isinstance(positions, int):
            raise ConfigError(
                f"{where}: max_position_embeddings is {quoted(positions)}; expected a number"
            )
        sizes["positions"] = positions + before
        sizes |= architecture.options(known, where)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{where}: missing or wrong value: {error}") from None
    for name, size in sizes.items():
        if isinstance(size, int) and size > _LARGEST:
            key = architecture.sizes.get(name, name)
            raise ConfigError(f"{where}: {key} is {quoted(size)}; expected at most {_LARGEST}")
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
    """Returns the config.json of a model. `rows` is the number of rows of its word embeddings."""
    written = {hf_key: getattr(model, key) for key, hf_key in architecture.sizes.items()}
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
    """Shifts a position table [positions, hidden] by `rows`.

    It adds `rows` rows of zeros before the table, or removes the first -`rows` rows. No position
    reads these rows.
    """
    return np.pad(table, ((rows, 0), (0, 0))) if rows > 0 else table[-rows:]


def token_types(architecture: Architecture, model: Model) -> int:
    """Returns the number of rows of the exported token type table, enough for the tokenizer's
    ids."""
    return max(model.token_types, architecture.token_types)
