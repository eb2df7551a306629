"""Encoder families: the options of `model` that the released models of a family share."""

import dataclasses
from typing import Any

import ml_collections

from xlj.config.fields import ConfigError, Value
from xlj.config.sections import BIASES, FAMILIES, Model

# `options_of` returns only options that a family lists here, and the export compares a model with
# these options. So options that no family changes are listed too, with the values of XLM-R.
_MODERN: dict[str, Value] = {
    "absolute_positions": False,
    "position_bias": "none",
    "pair_token_types": False,
    "key_value_heads": 0,
    "rotary_factor": 1.0,
}

_DIFFERENCES: dict[str, dict[str, Value]] = {
    "xlm_r": {},
    # As in ModernBERT. In mmBERT, local layers have the same rotary base as full layers.
    "modernbert": _MODERN
    | {
        "norm": "embeddings",
        "norm_type": "unbiased",
        "biases": ("vocabulary",),
        "feed_forward": "geglu",
        "rotary_base": 160_000.0,
        "rotary_local_base": 10_000.0,
        "local_attention": 128,
        "dropout_parts": ("attention",),
        "attention_dropout": 0.0,
    },
    "eurobert": _MODERN
    | {
        "norm": "pre",
        "norm_type": "rms",
        "biases": (),
        "feed_forward": "swiglu",
        "rotary_base": 250_000.0,
        "prediction": "linear",
        "tied": False,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "gte": _MODERN
    | {
        "layer_norm_epsilon": 1e-12,
        "biases": tuple(name for name in BIASES if name != "inner"),
        "feed_forward": "geglu",
        "rotary_base": 160_000.0,
        "token_types": 1,
    },
}
"""Differences of each family from XLM-R's options. Sources: released configs and code of
answerdotai/ModernBERT-base, EuroBERT/EuroBERT-210m, Alibaba-NLP/gte-multilingual-mlm-base."""


def options_of(family: str) -> dict[str, Value]:
    """Returns the options of `model` that distinguish families, with the values of this family.

    Raises:
      ConfigError: if there is no such family.
    """
    if family not in FAMILIES:
        raise ConfigError(f"model.family={family}: the families are {', '.join(FAMILIES)}")
    names = {name for options in _DIFFERENCES.values() for name in options}
    defaults: dict[str, Any] = {
        field.name: field.default for field in dataclasses.fields(Model) if field.name in names
    }
    return {"family": family} | defaults | _DIFFERENCES[family]


def set_family(config: ml_collections.ConfigDict, family: str) -> None:
    """Sets the options of a family in a recipe's `model`.

    Raises:
      ConfigError: if there is no such family.
    """
    for name, value in options_of(family).items():
        config.model[name] = ",".join(value) if isinstance(value, tuple) else value
