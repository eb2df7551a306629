"""An encoder that was trained: parameters, sizes and vocabulary."""

from pathlib import Path
from typing import NamedTuple

from xlj.checkpoints import stored_models
from xlj.checkpoints.stored_models import StoredModel
from xlj.config import Model
from xlj.config.choices import AlignmentOptions
from xlj.config.finetuning import Task
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.sentence_modules import SentenceModules
from xlj.models.encoder import Params
from xlj.sharding import meshes


class Pretrained(NamedTuple):
    """Parameters as `encoder.apply` takes them, the model that they are of, its vocabulary, how its
    words are aligned, how a folder of sentence-transformers makes vectors, the task that it was
    fine-tuned for, if it was, and how many `</s>` its head expects in a pair."""

    params: Params
    model: Model
    vocabulary: Vocabulary
    alignment: AlignmentOptions = AlignmentOptions()
    sentence: SentenceModules | None = None
    task: Task | None = None
    separators: int = 1


def load(path: str | Path, device: str | None = None) -> Pretrained:
    """An encoder on disk, on one device, verified.

    Args:
      path: a workdir (its latest checkpoint is taken), the folder of one checkpoint, or a Hugging
        Face folder.
      device: `cpu`, `gpu`, `cuda:1` and the like; None for the first.

    Raises:
      ConfigError: if there is no model or no device, or the model is damaged.
    """
    return of(stored_models.find(path), device)


def of(source: StoredModel, device: str | None = None) -> Pretrained:
    """The encoder of a source, on one device; raises a `ConfigError` if it is damaged."""
    params = source.params(meshes.one_device(device))
    return Pretrained(
        params,
        source.model,
        source.vocabulary(),
        source.alignment,
        source.sentence,
        source.task,
        source.separators,
    )
