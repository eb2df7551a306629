"""The config in a checkpoint that was converted, not trained."""

from __future__ import annotations

import dataclasses

from xlj.config import Config, Model, Supervised, build
from xlj.interop.architectures import TASKS
from xlj.models.encoder import FIRST_POSITION, Params
from xlj.training.stored_models import Source


def config_of(source: Source, params: Params, model: Model) -> Config:
    """The config of converted parameters; with that of their task, if a source has its head."""
    config = build({"init_from": str(source.folder), "model": dataclasses.asdict(model)})
    for head in TASKS.keys() & params.keys():
        length = model.positions - FIRST_POSITION
        task = Supervised(TASKS[head], 0, length, source.labels)
        config = dataclasses.replace(config, objectives=task)
    return config
