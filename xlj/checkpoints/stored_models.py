"""Models on disk to start from: checkpoints of xlj, and Hugging Face folders."""

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
"""Tokens in a row of a model that does not say how long the rows of its task are, at most."""


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A parameter on disk. NumPy reads it, anew each time, when it makes an array of it."""

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return self.read().astype(dtype, copy=False)


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """A model on disk. Weights and vocabulary are read when they are asked for.

    Attributes:
      folder: where it is.
      model: its sizes, and how it computes.
      languages: that its language embeddings are of, in order; empty if it does not say.
      vocabulary: the vocabulary, read once; raises a `ConfigError` if it is damaged.
      params: reads all parameters onto a mesh, a nested dict; raises a `ConfigError` if one is
        damaged.
      leaves: all parameters by name, each read by itself, with the same error.
      digest: tells its weights from others, wherever it is.
      checkpoint: the checkpoint, unless it is a Hugging Face folder.
      report: what became of each tensor of a Hugging Face folder, for people.
      alignment: how its words are aligned, as its config chose (`evaluation.alignment`).
      names: the set of names that its tensors had in a Hugging Face folder, if there are several.
      labels: names of the classes or tags that the head of a fine-tuned task tells apart, in order.
      task: the task that it was fine-tuned for, if it was.
      separators: how many `</s>` its head expects between the sentences of a pair.
      sentence: how a folder of sentence-transformers makes vectors of its hidden states. Weights
        are leaves (`SENTENCE`).
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
    """The model at `path`: a workdir (its latest checkpoint; of a finished fine-tuning run that
    which was chosen on dev), the folder of one checkpoint, or a Hugging Face folder. `average`
    behind a workdir or a checkpoint, as in runs/mine/average, names the moving average of its
    parameters.

    Args:
      key: what named the path, for the error.

    Raises:
      ConfigError: if there is none, or it is damaged or of an architecture that xlj does not have.
    """
    path = resolve(key or "checkpoint", path)
    if isinstance(path, Path) and hugging_face.is_folder(path):
        return of_folder(path)
    try:
        if path.name == reading.AVERAGE and not reading.holds_models(path):
            return _average_of(find(path.parent, key))
        if run := finished_run(path):
            path = path / "checkpoints" / str(run["step"])
        checkpoint = reading.find(path, key)
    except CheckpointError as error:
        raise CheckpointError(f"{error}{_hub_hint(path)}") from error.__cause__
    except OSError as error:  # a bucket's server
        named = f"{key}={path}" if key else path
        raise ConfigError(f"{named}: it cannot be read ({error.strerror or error})") from error
    return of_checkpoint(checkpoint)


_HUB = {"xlm-roberta": "FacebookAI", "roberta": "FacebookAI", "bert": "google-bert"}
"""Who has the models whose names on the hub had no owner once, by the first part of the name."""


def _hub_hint(path: AnyPath) -> str:
    """The rest of an error: the command that downloads a model, if the path is none that is there,
    but looks like a name on Hugging Face's hub."""
    owner, slash, name = str(path).rpartition("/")
    if not slash:
        owner = next((who for part, who in _HUB.items() if name.startswith(f"{part}-")), "")
    is_name = re.fullmatch(r"[\w-]+", owner) and re.fullmatch(r"[\w.-]+", name)
    if not is_name or owner in ("runs", "checkpoints") or isinstance(path, Url):
        return ""
    if path.exists() or Path(owner).exists():
        return ""
    return (
        f"; a model of Hugging Face's hub is downloaded with `hf download {owner}/{name} "
        f"--local-dir={name}`, and is then named {name}"
    )


def _average_of(model: StoredModel) -> StoredModel:
    """The model with the moving average of its parameters in their place."""
    checkpoint = model.checkpoint
    if checkpoint is None or reading.AVERAGE not in checkpoint.meta["tensors"]:
        raise CheckpointError(
            f"{model.folder} holds no average of its parameters; leave {reading.AVERAGE} out, or "
            "train with optimizer.average"
        )
    return of_checkpoint(checkpoint, reading.AVERAGE)


def of_checkpoint(checkpoint: Checkpoint, item: str = reading.PARAMS) -> StoredModel:
    """The model in a checkpoint, or that of the average of its parameters."""
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
        sentence=sentence_modules.of_record(checkpoint.meta.get("sentence")),
        task=_task(checkpoint),
        separators=checkpoint.meta.get("separators", 1),
    )


def _task(checkpoint: Checkpoint) -> Task | None:
    """The task of a checkpoint of fine-tuning; its run says how it is used (`TASK`), or it does
    itself if it was converted."""
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
    """What the config of a run chose; one of fine-tuning chooses nothing."""
    chosen = config.get("evaluation", {}).get("alignment", {})
    names = (field.name for field in dataclasses.fields(AlignmentOptions))
    return AlignmentOptions(**{name: chosen[name] for name in names if name in chosen})


def of_folder(path: Path) -> StoredModel:
    """The model in a Hugging Face folder; raises a `ConfigError` as `importing.inspect` does."""
    imported = importing.inspect(sentence_modules.transformer(path))
    sentence, dense = sentence_modules.read(path, imported.folder, imported.model.hidden)
    task, separators, file = None, 1, path / TASK
    if imported.head:
        separators = tokenizer_files.separators(imported.folder.path, imported.vocabulary)
        saved = json_file.read_object(file) if file.is_file() else None
        most = imported.model.positions - FIRST_POSITION
        task = task_of_model(TASKS[imported.head], min(most, _LENGTH), imported.labels, saved)
    report, digest = imported.report(), imported.folder.digest
    if sentence:
        report += f"\n  sentence vectors: {sentence.report()}; training leaves these modules out"
        digest = partial(sentence_modules.digest, imported.folder, sentence, dense)

    def params(mesh: Mesh) -> Params:
        made = importing.load(imported, lambda tree: shardings(tree, mesh, STORED))
        return made | jax.device_put(nested(dense), replicated(mesh))

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
