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
    return {name: _build(name, found, model, corpus) for name, found in options.items()}


def build_all(config: Config, corpus: Corpus) -> dict[str, Objective]:
    """The objectives that are on in any phase of a run, each as in the first phase that has it."""
    return build(config.objectives_on(), config.model, corpus)


def _build(name: str, options: Options, model: Model, corpus: Corpus) -> Objective:
    module, _, function = options.implementation.partition(":")
    return getattr(importlib.import_module(module), function)(name, options, model, corpus)
