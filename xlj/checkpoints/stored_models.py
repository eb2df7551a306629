"""Finds models on disk: checkpoints of xlj, and Hugging Face folders."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import DTypeLike

from xlj.checkpoints import metrics, reading
from xlj.checkpoints.reading import Checkpoint, CheckpointError
from xlj.checkpoints.workdir import finished_run, resolve
from xlj.config import ConfigError, Model, fields
from xlj.config.choices import AlignmentOptions
from xlj.config.paths import scheme_of
from xlj.config.task import TASK, Task, task_of_model
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import folder as hugging_face
from xlj.interop import from_hugging_face, model_card, sentence_modules, tokenizer_files
from xlj.interop.folder import CONFIG, TRAINED_ON_PAIRS, WORD_ALIGNMENT, Folder
from xlj.interop.sentence_modules import Dense, SentenceModules
from xlj.interop.task_heads import TASKS
from xlj.io import hub, json_file
from xlj.io.quoting import quoted
from xlj.io.storage import AnyPath, Url
from xlj.models.embeddings import FIRST_POSITION
from xlj.objectives.contrast.options import trained_vectors
from xlj.objectives.supervised.options import recorded_kind, supervised_in
from xlj.sharding.devices import STORED
from xlj.sharding.trees import Params, nested, replicated, shardings

_DEFAULT_LENGTH = 512
"""The maximum number of tokens per row for task heads whose folder does not state it."""


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A parameter on disk. It is read each time that NumPy converts it to an array."""

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return self.read().astype(dtype, copy=False)


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """A model on disk. Weights and vocabulary are read when they are used.

    Attributes:
      folder: the folder of the model.
      model: the sizes and options of the encoder.
      languages: the languages of the language embeddings, in order; empty if unknown.
      vocabulary: function that returns the vocabulary, which is read once. It raises a
        `ConfigError` if the vocabulary is damaged.
      params: function that reads all parameters onto a mesh, as a nested dict. It raises a
        `ConfigError` if a parameter is damaged.
      leaves: all parameters by name. Each is read separately, and raises a `ConfigError` if it is
        damaged.
      digest: function that returns a hash of the weights, which does not depend on the path.
      checkpoint: the checkpoint; None for a Hugging Face folder.
      report: a printable report on the tensors of a Hugging Face folder: used, ignored, missing.
      alignment: the options of word alignment in the run's config (`evaluation.alignment`), with
        the layer that the run has chosen, or those in config.json.
      labels: names of the classes or tags of the task head, in order.
      task: the task for which the model was fine-tuned; None without a task head.
      separators: the number of `</s>` that the task head expects between the sentences of a pair.
      trained_on_pairs: whether the checkpoint or config.json says that the model was trained on
        pairs that are encoded together, as in TLM.
      sentence: the modules of a sentence-transformers folder, which compute sentence vectors from
        hidden vectors. The modules' weights are in `leaves` (`sentence_modules.SENTENCE`).
      known: the languages that the model was trained on, as its checkpoint or model card says;
        empty if neither does.
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
    task: Task | None = None
    separators: int = 1
    sentence: SentenceModules | None = None
    known: tuple[str, ...] = ()
    trained_on_pairs: bool = False


def find(path: str | AnyPath, key: str = "") -> StoredModel:
    """Finds the model at `path`.

    `path` is one of:

    - a workdir, for its latest checkpoint, or with `train.best_metric` for its best checkpoint;
    - the workdir of a finished fine-tuning run, for the checkpoint that was chosen on dev;
    - the folder of a checkpoint;
    - one of these paths followed by `/average`, for the moving average of the parameters;
    - a Hugging Face folder;
    - `hf://OWNER/NAME@REVISION` for a Hugging Face folder on the hub, which is downloaded.

    Args:
      key: the key or flag that set the path, for errors.

    Raises:
      ConfigError: if there is no model, it is damaged, or xlj does not support its architecture.
    """
    path = hub.download(str(path)) if scheme_of(str(path)) == "hf" else path
    path = resolve(key or "checkpoint", path)
    if isinstance(path, Path) and hugging_face.is_folder(path):
        return of_folder(path)
    try:
        if path.name == reading.AVERAGE and not reading.contains_models(path):
            return _find_average(find(path.parent, key))
        if run := finished_run(path):
            path = path / "checkpoints" / str(run["step"])
        checkpoint = reading.find(path, key)
        if checkpoint.folder != path:
            checkpoint = reading.best(path)
    except CheckpointError as error:
        raise CheckpointError(f"{error}{_hub_hint(path)}") from error.__cause__
    except OSError as error:  # a bucket's server
        key_and_path = f"{key}={path}" if key else path
        raise ConfigError(f"{key_and_path} cannot be read ({error.strerror or error})") from error
    return of_checkpoint(checkpoint)


_HUB_OWNERS = {"xlm-roberta": "FacebookAI", "roberta": "FacebookAI", "bert": "google-bert"}
"""Owners on the Hugging Face Hub of models that are also known by a name without an owner, such as
xlm-roberta-base. The keys are the beginnings of such names."""


def _hub_hint(path: AnyPath) -> str:
    """Returns the end of an error message: the URL of a model on the hub.

    The text is empty if the path exists, or does not look like a name on the Hugging Face Hub.
    """
    owner, slash, name = str(path).rpartition("/")
    if not slash:
        owner = next((who for part, who in _HUB_OWNERS.items() if name.startswith(f"{part}-")), "")
    is_name = re.fullmatch(r"[\w-]+", owner) and re.fullmatch(r"[\w.-]+", name)
    if not is_name or owner in ("runs", "checkpoints") or isinstance(path, Url):
        return ""
    if path.exists() or Path(owner).exists():
        return ""
    return f"; for the model of the Hugging Face hub, set the path to hf://{owner}/{name}"


def _find_average(model: StoredModel) -> StoredModel:
    """Returns the model with the moving average of the parameters of a checkpoint."""
    checkpoint = model.checkpoint
    if checkpoint is None or reading.AVERAGE not in checkpoint.meta["tensors"]:
        raise CheckpointError(
            f"{model.folder} contains no moving average of parameters; remove {reading.AVERAGE} "
            "from the path, or train with optimizer.average"
        )
    return of_checkpoint(checkpoint, reading.AVERAGE)


def of_checkpoint(checkpoint: Checkpoint, item: str = reading.PARAMS) -> StoredModel:
    """Returns the model in a checkpoint.

    Args:
      item: `reading.PARAMS`, or `reading.AVERAGE` for the moving average of the parameters.
    """
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
        alignment=_read_alignment_options(checkpoint),
        labels=tuple(supervised_in(checkpoint.config()).get("labels", ())),
        sentence=_read_sentence_modules(checkpoint),
        known=tuple(checkpoint.meta["languages"]),
        task=_read_task(checkpoint),
        separators=checkpoint.meta.get("separators", 1),
        trained_on_pairs=checkpoint.trained_on_pairs,
    )


def _read_task(checkpoint: Checkpoint) -> Task | None:
    """Returns the task of a fine-tuned checkpoint; None for other checkpoints.

    The options for using the head are in a file of the run (`TASK`). A converted checkpoint
    contains them in its description.
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


def _read_sentence_modules(checkpoint: Checkpoint) -> SentenceModules | None:
    """Returns the modules of an imported model, or those that a run has trained."""
    if (record := checkpoint.meta.get("sentence")) is not None:
        return sentence_modules.from_record(record)
    model = checkpoint.model()
    options = trained_vectors(checkpoint.config(), model.layers)
    if options is None:
        return None
    prompts = {
        role: options.get(key) or options.get("prompt", "")
        for role, key in (("query", "query_prompt"), ("document", "passage_prompt"))
    }
    dense = None
    if outputs := options["dense"]:
        activation, bias = options.get("activation", "Identity"), options.get("bias", False)
        dense = Dense(model.hidden, outputs, activation, bias)
    sizes = [int(entry.partition("=")[0]) for entry in options.get("dimensions", ())]
    return sentence_modules.trained(
        sentence_modules.pooling_only(model.positions - FIRST_POSITION, options["pooling"]),
        model.hidden,
        dense,
        prompts if any(prompts.values()) else {},
        sizes,
    )


def _read_alignment_options(checkpoint: Checkpoint) -> AlignmentOptions:
    """Returns the alignment options of a run's config, and the layer that the run has chosen.

    Configs of fine-tuning have defaults. The layer of a checkpoint that was saved in an interrupted
    evaluation is in the metrics of its workdir.
    """
    recorded = checkpoint.config().get("evaluation", {}).get("alignment", {})
    names = (field.name for field in dataclasses.fields(AlignmentOptions))
    options = AlignmentOptions(**{name: recorded[name] for name in names if name in recorded})
    if options.layer < 0:
        layer = checkpoint.meta.get(reading.ALIGNED_LAYER, -1)
        if not checkpoint.meta["measured"]:
            lines = metrics.read(checkpoint.folder.parent.parent)
            of_step = (line for line in lines if line["step"] == checkpoint.step)
            layer = next(of_step, {}).get(metrics.LAYER_METRIC, layer)
        options = dataclasses.replace(options, layer=layer)
    return options


def _alignment_of_folder(folder: Folder, model: Model) -> AlignmentOptions:
    """Returns the alignment options in config.json.

    Raises:
      ConfigError: if an option does not exist or has an impossible value.
    """
    recorded = folder.config.get(WORD_ALIGNMENT, {})
    try:
        if not isinstance(recorded, dict):
            raise ConfigError(f"{quoted(recorded)} is not a JSON object")
        options = fields.build(AlignmentOptions, recorded)
        if options.layer > model.layers:
            raise ConfigError(f"layer is {options.layer}; it must be at most {model.layers}")
    except ConfigError as error:
        raise ConfigError(f"{folder.path / CONFIG}: {WORD_ALIGNMENT}: {error}") from None
    return options


def of_folder(path: Path) -> StoredModel:
    """Returns the model in a Hugging Face folder.

    Raises:
      ConfigError: if the folder is damaged or not supported (`from_hugging_face.inspect`).
    """
    imported = from_hugging_face.inspect(sentence_modules.encoder_folder(path))
    sentence, dense = sentence_modules.read(path, imported.folder, imported.model.hidden)
    task, separators, file = None, 1, path / TASK
    if imported.head:
        separators = tokenizer_files.count_separators(imported.folder.path, imported.vocabulary)
        # xlj did not write a folder without the file. Others tag the first piece of a word.
        saved = json_file.read_object(file) if file.is_file() else {"tagged_piece": "first"}
        max_length = imported.model.positions - FIRST_POSITION
        task = task_of_model(
            TASKS[imported.head], min(max_length, _DEFAULT_LENGTH), imported.labels, saved
        )
    report, digest = imported.report(), imported.folder.digest
    if sentence:
        report += f"\n  sentence modules: {sentence.report()}; training does not use them"
        digest = partial(sentence_modules.digest, imported.folder, sentence, dense)

    def params(mesh: Mesh) -> Params:
        loaded = from_hugging_face.load(imported, lambda tree: shardings(tree, mesh, STORED))
        return loaded | jax.device_put(nested(dense), replicated(mesh))

    leaves = {
        name: Leaf(imported.shapes[name], partial(from_hugging_face.read, imported, name))
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
        alignment=_alignment_of_folder(imported.folder, imported.model),
        labels=imported.labels,
        task=task,
        separators=separators,
        sentence=sentence,
        known=model_card.read_languages(path),
        trained_on_pairs=imported.folder.config.get(TRAINED_ON_PAIRS) is True,
    )
