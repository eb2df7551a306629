"""The encoder inside a checkpoint: parameters, sizes and vocabulary."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import jax

from xlj.config import Model
from xlj.data.vocabulary import Vocabulary
from xlj.models.encoder import Params
from xlj.training import checkpoints, partitioning


class Pretrained(NamedTuple):
    """Parameters as `encoder.apply` takes them, the model that they are of, and its vocabulary."""

    params: Params
    model: Model
    vocabulary: Vocabulary


def load(path: str | Path) -> Pretrained:
    """The encoder of a checkpoint, on the first device, verified.

    Args:
      path: a workdir (its latest checkpoint is taken), or the folder of one checkpoint.

    Raises:
      CheckpointError: if there is no checkpoint, or it is damaged.
    """
    checkpoint = checkpoints.find(path)
    return Pretrained(
        checkpoints.restore_params(checkpoint, partitioning.one_device()),
        Model(**checkpoint.config()["model"]),
        checkpoints.read_vocabulary(checkpoint),
    )


def first_layers(pretrained: Pretrained, layers: int) -> Pretrained:
    """The same encoder, ending after its first `layers` layers."""
    params = dict(pretrained.params)
    params["layers"] = jax.tree.map(lambda stacked: stacked[:layers], params["layers"])
    model = dataclasses.replace(pretrained.model, layers=layers)
    return pretrained._replace(params=params, model=model)
