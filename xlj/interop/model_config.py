"""Reads a model's architecture and sizes from a config.json, and makes a model's config.json."""

from collections.abc import Mapping

import numpy as np

from xlj import families
from xlj.config import ConfigError, Model, build
from xlj.families.interface import Architecture
from xlj.io.json_file import Record
from xlj.io.quoting import quoted, shortened
from xlj.models.embeddings import FIRST_POSITION

_JINA = (
    "jina-embeddings-v3 has five LoRA adapters in its linear layers, one for each task, and each "
    "call selects one adapter; xlj's encoder has no adapters"
)
_GEMMA = (
    "encoders based on Gemma have four norms per layer with scales 1 + w, scaled embeddings, and "
    "either normalised queries and keys or capped attention scores; xlj's encoder supports none of "
    "these"
)
_SONAR = (
    "SONAR and NLLB have M2M-100's encoder with sinusoidal positions and ReLU, and a decoder; "
    "xlj's encoder supports none of these"
)
_DEBERTA = (
    "mDeBERTa adds products of queries and keys with embedded distances to the attention scores; "
    "xlj's encoder does not support them"
)
_NEOBERT = (
    "NeoBERT's rotary positions rotate neighbouring dimensions of a head, and it stores queries, "
    "keys and values head by head; xlj's encoder rotates the two halves of a head"
)

UNSUPPORTED: Mapping[str, str] = {
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
    "ultrabert": "UltraBERT has a window and a rotary base for each layer, and a head "
    "with two layers; xlj's encoder supports one window, two rotary bases, and a head with one "
    "layer",
}  # fmt: skip
"""The encoders that xlj does not support, by `model_type`, with the reason."""

_MAX_SIZE = 2**31 - 1  # the largest size that XLA supports


def find_architecture(config: Record, where: str) -> Architecture:
    """Returns the architecture that a config.json names.

    Args:
      where: the path of the config.json, for errors.

    Raises:
      ConfigError: if xlj does not support the architecture or one of its options.
    """
    name = config.get("model_type")
    if "lora_adaptations" in config:  # jina's config.json names XLM-R
        name = "jina_embeddings_v3"
    supported_types = families.architectures()
    if not isinstance(name, str) or name not in supported_types:
        if isinstance(name, str) and name in UNSUPPORTED:
            raise ConfigError(f"{where}: model_type is {quoted(name)}; {UNSUPPORTED[name]}")
        raise ConfigError(
            f"{where}: model_type is {quoted(name)}; xlj supports {', '.join(supported_types)} "
            "(XLM-Align and InfoXLM have model_type xlm-roberta, mBERT has bert, mmBERT has "
            "modernbert)"
        )
    architecture = supported_types[name]
    for key, supported in architecture.fixed.items():
        if config.get(key, supported) not in (supported, None):
            raise ConfigError(
                f"{where}: {key} is {quoted(config[key])}; xlj's encoder supports {supported!r} "
                "only"
            )
    pad = config.get("pad_token_id", 1)
    if architecture.has_pad_rows and (not isinstance(pad, int) or pad < 0):
        raise ConfigError(
            f"{where}: pad_token_id is {quoted(pad)}; expected an id of 0 or more, because "
            "positions are counted from it"
        )
    classes = config.get("architectures")
    if classes is not None and not isinstance(classes, list):
        raise ConfigError(
            f"{where}: architectures is {quoted(classes)}; expected a list of class names"
        )
    return architecture.with_pad(pad)


def read_model(architecture: Architecture, config: Record, where: str) -> Model:
    """Returns the sizes and options of the model that a config.json describes.

    Raises:
      ConfigError: if a key is missing, or a value is not supported.
    """
    config_values = {**architecture.defaults, **config}
    added_positions = FIRST_POSITION - architecture.first_position
    family, defaults = families.of_model_type(architecture.model_type)
    try:
        sizes = {"family": family, **defaults.options}
        sizes |= {key: config_values[hf_key] for key, hf_key in architecture.sizes.items()}
        positions = config_values["max_position_embeddings"]
        if not isinstance(positions, int):
            raise ConfigError(
                f"{where}: max_position_embeddings is {quoted(positions)}; expected an integer"
            )
        sizes["positions"] = positions + added_positions
        sizes |= architecture.read_config(config_values, where)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{where}: missing or wrong value: {error}") from None
    for name, size in sizes.items():
        if isinstance(size, int) and size > _MAX_SIZE:
            key = architecture.sizes.get(name, name)
            raise ConfigError(f"{where}: {key} is {quoted(size)}; expected at most {_MAX_SIZE}")
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


def make_config(architecture: Architecture, model: Model, rows: int) -> Record:
    """Returns the config.json of a model.

    Args:
      rows: the number of rows of the exported word embeddings.
    """
    size_keys = {hf_key: getattr(model, key) for key, hf_key in architecture.sizes.items()}
    if "token_types" in architecture.sizes:
        size_keys[architecture.sizes["token_types"]] = architecture.type_rows(model)
    return {
        "model_type": architecture.model_type,
        **size_keys,
        "max_position_embeddings": model.positions - FIRST_POSITION + architecture.first_position,
        "vocab_size": rows,
        "dtype": "float32",
        **architecture.write_config(model),
    }


def shift_positions(table: np.ndarray, rows: int) -> np.ndarray:
    """Shifts a position table [positions, hidden] by `rows` rows.

    A positive number inserts rows of zeros before the table. A negative number removes the first
    rows. No token's position reads the inserted or removed rows.
    """
    return np.pad(table, ((rows, 0), (0, 0))) if rows > 0 else table[-rows:]
