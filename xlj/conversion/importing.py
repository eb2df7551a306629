"""Imports a Hugging Face folder, and writes checkpoints of converted parameters."""

import dataclasses
from pathlib import Path
from typing import Any

from xlj.checkpoints import stored_models, writing
from xlj.checkpoints.stored_models import StoredModel
from xlj.config import Model, Objectives, build
from xlj.config.task import labelling_options
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.folder import TRAINED_ON_PAIRS
from xlj.interop.task_heads import TASKS
from xlj.models.embeddings import FIRST_POSITION
from xlj.objectives.supervised.options import SUPERVISED
from xlj.sharding import meshes
from xlj.sharding.trees import Params
from xlj.word_alignment import methods


def import_folder(source: Path, output: Path) -> None:
    """Imports a Hugging Face folder: writes a checkpoint, and prints a report on all tensors.

    A folder without a head becomes a checkpoint without a head, so an export of the checkpoint has
    the tensors of the folder. A run that starts from the folder or the checkpoint initialises the
    heads that it needs.

    Raises:
      ConfigError: if the folder cannot be read, or its architecture is not supported.
    """
    folder = stored_models.of_folder(source)
    print(folder.report)
    store(output, folder, folder.params(meshes.one_device()), folder.model, folder.vocabulary())
    print_next(output)


def store(
    output: Path,
    source: StoredModel,
    params: Params,
    model: Model,
    vocabulary: Vocabulary,
    **entries: Any,
) -> None:
    """Writes a checkpoint of converted parameters.

    If the parameters include a task head, the checkpoint's config contains the task's objective.

    Args:
      output: the path of the new checkpoint.
      source: the model that was converted.
      **entries: entries to add to the checkpoint's description.
    """
    alignment = dataclasses.asdict(methods.usable(source.alignment, params))
    if model.layers != source.model.layers:
        alignment["layer"] = -1  # the layers have other numbers
    config = build(
        {
            "init_from": str(source.folder),
            "model": dataclasses.asdict(model),
            "evaluation": {"alignment": alignment},
        }
    )
    for head in TASKS.keys() & params.keys():
        length = model.positions - FIRST_POSITION
        task = SUPERVISED[TASKS[head]](length=length, labels=source.labels)
        objectives = Objectives(options={TASKS[head]: task})
        config = dataclasses.replace(config, objectives=objectives)
    more: dict[str, Any] = dict(entries)
    if source.task:
        more["task"] = labelling_options(source.task)
    if source.trained_on_pairs:
        more[TRAINED_ON_PAIRS] = True
    if source.separators != 1:
        more["separators"] = source.separators
    if source.sentence:
        more["sentence"] = source.sentence.record()
    writing.write_params(output, params, config, vocabulary, list(source.languages), more)


def print_next(output: Path) -> None:
    """Prints the path of a checkpoint and the flags that use it."""
    print(f"checkpoint: {output}\nuse it: --config.init_from={output}, or --checkpoint={output}")
