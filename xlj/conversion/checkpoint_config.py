"""The config in a checkpoint that was converted, not trained."""

import dataclasses

from xlj.config import SUPERVISED, Config, Model, Objectives, build
from xlj.interop.architectures import TASKS
from xlj.models.encoder import FIRST_POSITION, Params
from xlj.training.stored_models import StoredModel


def config_of(source: StoredModel, params: Params, model: Model) -> Config:
    """The config of converted parameters; with that of their task, if a source has its head."""
    config = build({"init_from": str(source.folder), "model": dataclasses.asdict(model)})
    for head in TASKS.keys() & params.keys():
        length = model.positions - FIRST_POSITION
        task = SUPERVISED[TASKS[head]](length=length, labels=source.labels)
        objectives = Objectives(options={TASKS[head]: task})
        config = dataclasses.replace(config, objectives=objectives)
    return config
