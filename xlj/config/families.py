"""Families of encoders: the options of `model` that their released models share."""

import dataclasses
from typing import Any

import ml_collections

from xlj.config.fields import ConfigError, Value
from xlj.config.sections import BIASES, FAMILIES, Model

# Some are XLM-R's: what a family lists is set by each of the others too, and compared on export.
_MODERN: dict[str, Value] = {
    "absolute_positions": False,
    "position_bias": "none",
    "pair_token_types": False,
    "key_value_heads": 0,
    "rotary_factor": 1.0,
}

_OWN: dict[str, dict[str, Value]] = {
    "xlm_r": {},
    # ModernBERT's; mmBERT's local layers have the base of the full ones.
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
"""What each family changes in XLM-R's options. Sources: released configs and code of
answerdotai/ModernBERT-base, EuroBERT/EuroBERT-210m, Alibaba-NLP/gte-multilingual-mlm-base."""


def options_of(family: str) -> dict[str, Value]:
    """The options of `model` that distinguish families, with this one's values.

    Raises:
      ConfigError: if there is no such family.
    """
    if family not in FAMILIES:
        raise ConfigError(f"model.family={family}; there are {', '.join(FAMILIES)}")
    names = {name for own in _OWN.values() for name in own}
    defaults: dict[str, Any] = {
        field.name: field.default for field in dataclasses.fields(Model) if field.name in names
    }
    return {"family": family} | defaults | _OWN[family]


def set_family(config: ml_collections.ConfigDict, family: str) -> None:
    """Gives a recipe's model the options of a family; raises as `options_of`."""
    for name, value in options_of(family).items():
        config.model[name] = ",".join(value) if isinstance(value, tuple) else value
