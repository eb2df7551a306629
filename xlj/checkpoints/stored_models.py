"""Finds models on disk to start from: checkpoints of xlj, and Hugging Face folders."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import DTypeLike

from xlj.checkpoints import reading
from xlj.checkpoints.reading import Checkpoint, CheckpointError
from xlj.checkpoints.workdir import finished_run, resolve
from xlj.config import ConfigError, Model
from xlj.config.choices import AlignmentOptions
from xlj.config.finetuning import TASK, Task, task_of_model
from xlj.config.objectives.supervised import recorded_kind, supervised_in
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import folder as hugging_face
from xlj.interop import importing, sentence_modules, tokenizer_files
from xlj.interop.architectures import TASKS
from xlj.interop.sentence_modules import SentenceModules
from xlj.io import json_file
from xlj.io.storage import AnyPath, Url
from xlj.models.embeddings import FIRST_POSITION
from xlj.models.encoder import Params
from xlj.sharding.rules import STORED
from xlj.sharding.trees import nested, replicated, shardings

_LENGTH = 512
"""Tokens of a row, at most, if a model does not state the row length of its task."""


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A parameter on disk; read again each time that NumPy makes an array of it."""

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return self.read().astype(dtype, copy=False)


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """A model on disk. Weights and vocabulary are read when they are used.

    Attributes:
      folder: its folder.
      model: its sizes, and how it computes.
      languages: the languages of its language embeddings, in order; empty if unknown.
      vocabulary: returns the vocabulary, read once; raises a `ConfigError` if it is damaged.
      params: reads all parameters onto a mesh, a nested dict; raises a `ConfigError` if one is
        damaged.
      leaves: all parameters by name, each read separately, with the same error.
      digest: returns a hash that identifies its weights, independent of the folder.
      checkpoint: the checkpoint; None for a Hugging Face folder.
      report: printable description of what happened to each tensor of a Hugging Face folder.
      alignment: how its words are aligned, from its config (`evaluation.alignment`).
      names: the set of tensor names that it had in a Hugging Face folder, if there are several.
      labels: names of the classes or tags of its fine-tuned head, in order.
      task: the task that it was fine-tuned for, if any.
      separators: number of `</s>` that its head expects between the sentences of a pair.
      sentence: how a folder of sentence-transformers computes vectors from hidden states. Its
        weights are leaves (`SENTENCE`).
    """

    folder: AnyPath
    model: Model
    languages: tuple[str, ...]
    vocabulary: Callable[[], Vocabulary]
    params: Callable[[Mesh], Params]
    leaves: Mapping[str, Leaf]
    digest: Callable[[], str]
    checkpoint: Checkpoint | None = None
    report: str = ""
    alignment: AlignmentOptions = AlignmentOptions()
    labels: tuple[str, ...] = ()
    names: str = ""
    task: Task | None = None
    separators: int = 1
    sentence: SentenceModules | None = None


def find(path: str | AnyPath, key: str = "") -> StoredModel:
    """Finds the model at `path`.

    This is a workdir (its latest checkpoint; for a finished fine-tuning run, the one that was
    chosen on dev), the folder of one checkpoint, or a Hugging Face folder. `average` at the end of
    the path of a workdir or a checkpoint, as in runs/mine/average, selects the moving average of
    its parameters.

    Args:
      key: the key or flag that set the path, for errors.

    Raises:
      ConfigError: if there is none, it is damaged, or xlj does not have its architecture.
    """
    path = resolve(key or "checkpoint", path)
    if isinstance(path, Path) and hugging_face.is_folder(path):
        return of_folder(path)
    try:
        if path.name == reading.AVERAGE and not reading.contains_models(path):
            return _average_of(find(path.parent, key))
        if run := finished_run(path):
            path = path / "checkpoints" / str(run["step"])
        checkpoint = reading.find(path, key)
    except CheckpointError as error:
        raise CheckpointError(f"{error}{_hub_hint(path)}") from error.__cause__
    except OSError as error:  # a bucket's server
        named = f"{key}={path}" if key else path
        raise ConfigError(f"{named} cannot be read ({error.strerror or error})") from error
    return of_checkpoint(checkpoint)


_HUB = {"xlm-roberta": "FacebookAI", "roberta": "FacebookAI", "bert": "google-bert"}
"""Owners of models that once had no owner in their names on the hub, by the name's first part."""


def _hub_hint(path: AnyPath) -> str:
    """Returns the end of an error: the command that downloads a model.

    Empty unless the path does not exist and looks like a name on Hugging Face's hub.
    """
    owner, slash, name = str(path).rpartition("/")
    if not slash:
        owner = next((who for part, who in _HUB.items() if name.startswith(f"{part}-")), "")
    is_name = re.fullmatch(r"[\w-]+", owner) and re.fullmatch(r"[\w.-]+", name)
    if not is_name or owner in ("runs", "checkpoints") or isinstance(path, Url):
        return ""
    if path.exists() or Path(owner).exists():
        return ""
    return (
        f"; to use a model of Hugging Face's hub, run `hf download {owner}/{name} "
        f"--local-dir={name}` and set the path to {name}"
    )


def _average_of(model: StoredModel) -> StoredModel:
    """Returns the model with the moving average of its parameters."""
    checkpoint = model.checkpoint
    if checkpoint is None or reading.AVERAGE not in checkpoint.meta["tensors"]:
        raise CheckpointError(
            f"{model.folder} contains no average of its parameters; remove {reading.AVERAGE} from "
            "the path, or train with optimizer.average"
        )
    return of_checkpoint(checkpoint, reading.AVERAGE)


def of_checkpoint(checkpoint: Checkpoint, item: str = reading.PARAMS) -> StoredModel:
    """Returns the model of a checkpoint, or the model with the average of its parameters."""
    is_average = item == reading.AVERAGE
    return StoredModel(
        checkpoint.folder / item if is_average else checkpoint.folder,
        checkpoint.model(),
        tuple(checkpoint.meta["languages"]),
        cache(lambda: reading.read_vocabulary(checkpoint)),
        lambda mesh: reading.restore_params(checkpoint, mesh, item),
        {
            name: Leaf(leaf.shape, partial(reading.restore_leaf, checkpoint, name, item))
            for name, leaf in reading.abstract_params(checkpoint, item).items()
        },
        lambda: checkpoint.digest() + (f":{item}" if is_average else ""),
        checkpoint,
        alignment=_alignment(checkpoint.config()),
        labels=tuple(supervised_in(checkpoint.config()).get("labels", ())),
        names=checkpoint.meta.get("names", ""),
        sentence=sentence_modules.from_record(checkpoint.meta.get("sentence")),
        task=_task(checkpoint),
        separators=checkpoint.meta.get("separators", 1),
    )


def _task(checkpoint: Checkpoint) -> Task | None:
    """Returns the task of a fine-tuned checkpoint.

    How it is used is recorded by its run (`TASK`), or in the checkpoint if it was converted.
    """
    record = checkpoint.config()
    kind, options = recorded_kind(record), supervised_in(record)
    if not kind:
        return None
    folder = checkpoint.folder.parent
    file = folder.parent / TASK
    saved = checkpoint.meta.get("task")
    if folder.name == "checkpoints" and file.is_file():
        saved = json_file.read_object(file)
    return task_of_model(kind, options["length"], options["labels"], saved)


def _alignment(config: Mapping[str, Any]) -> AlignmentOptions:
    """Returns the alignment options of a run's config; configs of fine-tuning have none."""
    chosen = config.get("evaluation", {}).get("alignment", {})
    names = (field.name for field in dataclasses.fields(AlignmentOptions))
    return AlignmentOptions(**{name: chosen[name] for name in names if name in chosen})


def of_folder(path: Path) -> StoredModel:
    """Returns the model in a Hugging Face folder; raises a `ConfigError` as `importing.inspect`."""
    imported = importing.inspect(sentence_modules.encoder_folder(path))
    sentence, dense = sentence_modules.read(path, imported.folder, imported.model.hidden)
    task, separators, file = None, 1, path / TASK
    if imported.head:
        separators = tokenizer_files.count_separators(imported.folder.path, imported.vocabulary)
        saved = json_file.read_object(file) if file.is_file() else None
        most = imported.model.positions - FIRST_POSITION
        task = task_of_model(TASKS[imported.head], min(most, _LENGTH), imported.labels, saved)
    report, digest = imported.report(), imported.folder.digest
    if sentence:
        report += f"\n  sentence vectors: {sentence.report()}; training does not use these modules"
        digest = partial(sentence_modules.digest, imported.folder, sentence, dense)

    def params(mesh: Mesh) -> Params:
        loaded = importing.load(imported, lambda tree: shardings(tree, mesh, STORED))
        return loaded | jax.device_put(nested(dense), replicated(mesh))

    leaves = {
        name: Leaf(imported.shapes[name], partial(importing.read, imported, name))
        for name in imported.parameters
    }
    leaves |= {name: Leaf(array.shape, partial(np.copy, array)) for name, array in dense.items()}
    return StoredModel(
        path,
        imported.model,
        (),
        lambda: imported.vocabulary,
        params,
        leaves,
        digest,
        report=report,
        labels=imported.labels,
        names=imported.architecture.names,
        task=task,
        separators=separators,
        sentence=sentence,
    )
