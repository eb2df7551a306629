"""The encoder inside a checkpoint: parameters, sizes and vocabulary."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from xlj.config import Model
from xlj.data.vocabulary import Vocabulary
from xlj.models.encoder import Params
from xlj.training import checkpoints


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
    tensors = checkpoint.meta["tensors"]["params"]
    return Pretrained(
        checkpoints.restore_params(checkpoint, _abstract(tensors)),
        Model(**checkpoint.config()["model"]),
        checkpoints.read_vocabulary(checkpoint),
    )


def first_layers(pretrained: Pretrained, layers: int) -> Pretrained:
    """The same encoder, ending after its first `layers` layers."""
    params = dict(pretrained.params)
    params["layers"] = jax.tree.map(lambda stacked: stacked[:layers], params["layers"])
    model = dataclasses.replace(pretrained.model, layers=layers)
    return pretrained._replace(params=params, model=model)


def _abstract(tensors: dict[str, str]) -> dict[str, Any]:
    """Shapes and types of nested dicts, from the names and `float32[2, 3]` of a checkpoint."""
    device = SingleDeviceSharding(jax.devices()[0])
    tree: dict[str, Any] = {}
    for name, description in tensors.items():
        dtype, shape = re.fullmatch(r"(\w+)(\[.*\])", description).groups()  # type: ignore[union-attr]
        *path, last = name.split("/")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = jax.ShapeDtypeStruct(json.loads(shape), jnp.dtype(dtype), sharding=device)
    return tree
