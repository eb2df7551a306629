"""A checkpoint of a Hugging Face folder, and the config of one that was converted."""

import dataclasses
from pathlib import Path

import jax

from xlj.config import SUPERVISED, Config, Model, Objectives, build
from xlj.interop.architectures import TASKS
from xlj.models import heads
from xlj.models.encoder import FIRST_POSITION, Params
from xlj.training import checkpoints, partitioning, stored_models
from xlj.training.stored_models import StoredModel


def import_folder(source: Path, output: Path, seed: int) -> None:
    """Writes the checkpoint, and tells what became of each tensor.

    Args:
      seed: of a head for masked tokens, where there is none.

    Raises:
      ConfigError: if the folder cannot be read, or is of another architecture.
    """
    found = stored_models.of_folder(source)
    print(found.report)
    params = found.params(partitioning.one_device())
    vocabulary = found.vocabulary()
    if not {"prediction_head", *TASKS} & params.keys():
        print(f"initialised anew, with seed {seed}: prediction_head")
        params["prediction_head"] = heads.init_prediction(
            jax.random.key(seed), found.model, vocabulary.size
        )
    config = config_of(found, params, found.model)
    checkpoints.write_params(output, params, config, vocabulary, [])
    print(f"\ncheckpoint: {output}\nnext: --config.init_from={output}, or --checkpoint={output}")


def config_of(source: StoredModel, params: Params, model: Model) -> Config:
    """The config of converted parameters; with that of their task, if a source has its head."""
    config = build({"init_from": str(source.folder), "model": dataclasses.asdict(model)})
    for head in TASKS.keys() & params.keys():
        length = model.positions - FIRST_POSITION
        task = SUPERVISED[TASKS[head]](length=length, labels=source.labels)
        objectives = Objectives(options={TASKS[head]: task})
        config = dataclasses.replace(config, objectives=objectives)
    return config
