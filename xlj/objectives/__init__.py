"""Objectives of pretraining and fine-tuning, as functions of rows, parameters and a state.

`build` creates objectives from their options, `build_all` all objectives of a run.
"""

import importlib
from collections.abc import Mapping

from xlj.config import Config, Model, Options
from xlj.data.rows.corpus import Corpus
from xlj.objectives.objective import Objective


def build(options: Mapping[str, Options], model: Model, corpus: Corpus) -> dict[str, Objective]:
    """Builds objectives.

    Args:
      options: the options of each objective, by its name. Their `implementation` is
        `module:function`.

    Returns:
      The objectives, by name.
    """
    built = {}
    for name, objective_options in options.items():
        module, _, function = objective_options.implementation.partition(":")
        built[name] = getattr(importlib.import_module(module), function)(
            name, objective_options, model, corpus
        )
    return built


def build_all(config: Config, corpus: Corpus) -> dict[str, Objective]:
    """Builds all objectives of a run, each with the options of the first phase that uses it."""
    return build(config.objectives_on(), config.model, corpus)
