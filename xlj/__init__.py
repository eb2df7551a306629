"""xlj: cross-lingual encoder pretraining in JAX (XLM-R, ERNIE-M, XLM-E, XLM-Align, MetaXLM).

    model = xlj.load("runs/quickstart")
    vectors = model.embed(["A cat sleeps.", "Eine Katze schläft."])

docs/api.md describes the API. Importing xlj imports neither JAX nor NumPy: the names below are
imported on first use.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from xlj.api.encoder import Encoder, Filling
    from xlj.api.loading import load
    from xlj.api.runs import fine_tune, pretrain
    from xlj.config import ConfigError
    from xlj.config.recipes import read as recipe

_HOMES = {
    "ConfigError": ("xlj.config", "ConfigError"),
    "Encoder": ("xlj.api.encoder", "Encoder"),
    "Filling": ("xlj.api.encoder", "Filling"),
    "fine_tune": ("xlj.api.runs", "fine_tune"),
    "load": ("xlj.api.loading", "load"),
    "pretrain": ("xlj.api.runs", "pretrain"),
    "recipe": ("xlj.config.recipes", "read"),
}
"""Maps each public name to its module and its name in the module. No public name may be the name of
a command: after `import xlj.align`, `xlj.align` is the module of the command."""

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'xlj' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
