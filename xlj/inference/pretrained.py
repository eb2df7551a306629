"""Loads a trained encoder with the vocabulary and the options that belong to it."""

from pathlib import Path
from typing import NamedTuple

from jax.sharding import Mesh

from xlj.checkpoints import stored_models
from xlj.checkpoints.stored_models import StoredModel
from xlj.config import Model
from xlj.config.choices import AlignmentOptions
from xlj.config.task import Task
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.sentence_modules import SentenceModules
from xlj.sharding import meshes
from xlj.sharding.trees import Params


class Pretrained(NamedTuple):
    """A trained encoder.

    Attributes:
      params: the parameters, of the encoder and of heads.
      alignment: the default options of word alignment.
      sentence: the sentence-transformers modules that compute sentence vectors; None if the model
        has none.
      task: the task for which the model was fine-tuned; None if it was not fine-tuned.
      separators: the number of `</s>` that the task head expects between the sentences of a pair.
      trained_on_pairs: whether the model was trained on pairs that are encoded together, as in TLM.
    """

    params: Params
    model: Model
    vocabulary: Vocabulary
    alignment: AlignmentOptions = AlignmentOptions()
    sentence: SentenceModules | None = None
    task: Task | None = None
    separators: int = 1
    trained_on_pairs: bool = False


def load(path: str | Path, device: str | None = None) -> Pretrained:
    """Loads an encoder onto one device, and verifies the digests of a checkpoint.

    Args:
      path: the path of a model: a workdir, the folder of a checkpoint, or a Hugging Face folder
        (`stored_models.find`).
      device: the name of a device, such as `cpu`, `gpu` or `cuda:1`. None for JAX's first device.

    Raises:
      ConfigError: if the model or the device does not exist, or the model is damaged.
    """
    return of(stored_models.find(path), meshes.one_device(device))


def of(source: StoredModel, mesh: Mesh | None = None) -> Pretrained:
    """Loads the encoder of a stored model onto a mesh; None for a mesh of JAX's first device.

    Raises:
      ConfigError: if the model is damaged.
    """
    params = source.params(mesh or meshes.one_device())
    return Pretrained(
        params,
        source.model,
        source.vocabulary(),
        source.alignment,
        source.sentence,
        source.task,
        source.separators,
        source.trained_on_pairs,
    )
