"""Objectives: each corrupts rows without parameters, then sums its losses.

`build` is the one place where a config's objectives become functions.
"""

import importlib
from collections.abc import Mapping

from xlj.config import Config, Model, Options
from xlj.data.rows.corpus import Corpus
from xlj.objectives.objective import Objective


def build(options: Mapping[str, Options], model: Model, corpus: Corpus) -> dict[str, Objective]:
    """The objectives of these options, by name."""
    built = {}
    for name, found in options.items():
        module, _, function = found.implementation.partition(":")
        built[name] = getattr(importlib.import_module(module), function)(name, found, model, corpus)
    return built


def build_all(config: Config, corpus: Corpus) -> dict[str, Objective]:
    """The objectives that are on in any phase of a run, each as in the first phase that has it."""
    return build(config.objectives_on(), config.model, corpus)
