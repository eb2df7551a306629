"""Prepares a run: finds its checkpoint and models, checks them against the config, builds rows."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from functools import partial

import jax
from jax.sharding import Mesh

from xlj import families
from xlj.checkpoints import compatibility, reading, stored_models
from xlj.checkpoints.reading import Checkpoint, CheckpointError
from xlj.checkpoints.stored_models import StoredModel
from xlj.config import Config, ConfigError, checks
from xlj.config.sections import KEYS_OF_RUN
from xlj.data.rows.preparing import open_rows, prepare_rows, with_pair_length
from xlj.data.rows.request import request_of
from xlj.data.rows.store import RowStore
from xlj.data.rows.vectors import Embed
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.distributed import hosts
from xlj.io import atomic, storage
from xlj.io.storage import AnyPath
from xlj.models.attention import choosing
from xlj.sharding import devices, meshes
from xlj.training import duration_steps, memory, teachers, transfer
from xlj.training.schedule import Schedule


@dataclasses.dataclass(frozen=True)
class Start:
    """What the train loop needs to start.

    Attributes:
      config: the config of the run. Its languages, lengths and vocabulary are those of the rows,
        all durations are steps, and `model.dtype` is not `auto`.
      workdir: the folder of checkpoints and metrics.
      mesh: of all devices.
      latest: the checkpoint from which the run resumes; None in a new run.
      source: the model that `init_from` names; None without `init_from`, and in a resumed run.
      models: the stored models that objectives' states start from, such as teachers, by (name of
        the objective, part of its state); empty in a resumed run.
      vocabulary: of the rows.
      store: the rows.
      attention: a line for each kind of layers: what computes attention, and why not another.
    """

    config: Config
    workdir: AnyPath
    mesh: Mesh
    latest: Checkpoint | None
    source: StoredModel | None
    models: Mapping[tuple[str, str], StoredModel]
    vocabulary: Vocabulary
    store: RowStore
    attention: list[str]

    @property
    def done(self) -> int:
        """The number of finished steps: the step of `latest`, or 0."""
        return self.latest.step if self.latest is not None else 0

    @property
    def started_from_pairs(self) -> bool:
        """Whether the model from which the run started was trained on pairs that are encoded
        together."""
        if self.latest is not None:
            return self.latest.trained_on_pairs
        loads_layers = "body" in self.config.transfer.parts
        return bool(self.source and self.source.trained_on_pairs and loads_layers)

    @property
    def trained_on_pairs(self) -> bool:
        """Whether the run, or the model from which it started, trains on pairs that are encoded
        together."""
        return self.started_from_pairs or self.config.trains_on_pairs()

    @functools.cached_property
    def schedule(self) -> Schedule:
        """The schedule of the run."""
        return Schedule(self.config, self.store)


def prepare(
    config: Config,
    workdir: AnyPath,
    store: RowStore | None = None,
    source: StoredModel | None = None,
    is_claimed: bool = False,
    teach: Callable[[str], Embed] | None = None,
) -> Start:
    """Prepares a run of pretraining or fine-tuning.

    Missing rows are built after all checks that do not need them. All processes of a run must call
    this inside `checkpoints.workdir.only_run`, which excludes other runs from the workdir.

    Args:
      config: the result of `xlj.config.checks.parse` or `adopt_model`.
      workdir: of the run. If it has checkpoints, the run resumes from the latest one.
      store: finished rows, which `open_rows` returned together with `config`; None to open or build
        rows here.
      source: the model that `init_from` names, if the caller has loaded the model; else None. The
        rows must have the vocabulary of this model.
      is_claimed: True if the caller has checked that the run in the workdir began with `source`.
        The path in `init_from` may then differ from the path in the checkpoint.
      teach: an argument of `prepare_rows`.

    Raises:
      ConfigError: if mesh, memory, text, rows, vocabulary, a model or a checkpoint does not fit the
        config.
    """
    if store is None:
        config, store = open_rows(config)
    if store is not None:
        config = _resolved(config, store)
    mesh = meshes.make_mesh(config)
    meshes.check_batches(config, mesh)
    if config.train.damaged_checkpoint == "before":
        reading.move_damaged(workdir)
    latest = reading.latest(workdir)
    config = with_dtype(config, latest, mesh)
    models = find_models(config) if latest is None else {}
    if latest is None:
        source = source or find_source(config)
        model = source or next(iter(models.values()), None)
    else:
        if is_claimed:
            config = dataclasses.replace(config, init_from=latest.config()["init_from"])
        if (early := duration_steps.with_steps_of(config, latest.config())) is not None:
            compatibility.check_resumable(latest, early)
        model = source or (stored_models.of_checkpoint(latest) if config.names_a_model() else None)
    config, vocabulary = adopt_vocabulary(config, model, store, resumes=latest is not None)
    check_separator(config, vocabulary)
    if latest is not None and store is None:
        compatibility.check_text(latest, request_of(config, vocabulary), config)
    config = _with_pair_length(config, latest, vocabulary, store)
    sizes = memory.expected_sizes(config, store, vocabulary)
    attention = _choose_attention(config, sizes, mesh)
    memory.check_fits(config, sizes, mesh)
    if store is None:
        processes = jax.process_count()
        store = prepare_rows(config, processes=processes, vocabulary=vocabulary, teach=teach)
    config = _checked_with_rows(config, latest, store)
    return Start(
        config=config,
        workdir=workdir,
        mesh=mesh,
        latest=latest,
        source=source if latest is None and config.init_from else None,
        models=models,
        vocabulary=vocabulary or Vocabulary.load(store.vocabulary_file),
        store=store,
        attention=attention,
    )


def adopt_model(config: Config, workdir: AnyPath | None = None) -> Config:
    """Replaces the config's section `model` by the section of the model that `init_from` names.

    With `transfer.model=config`, the section is not replaced. The keys in `KEYS_OF_RUN` keep the
    values of the config. A resumed run gets the section of its earliest checkpoint, since
    `train.damaged_checkpoint=before` may move later checkpoints away.

    Also sets the keys that describe the teachers of sentence vectors (`teachers.adopt`).

    Args:
      workdir: of the run, to find its checkpoints; None for a new run.

    Raises:
      ConfigError: if the model or a teacher does not exist or does not fit the config.
    """
    earliest = reading.earliest(workdir) if workdir is not None else None
    return teachers.adopt(_adopt_sizes(config, earliest), earliest)


def _adopt_sizes(config: Config, earliest: Checkpoint | None) -> Config:
    """Replaces the section `model` (`adopt_model`)."""
    if config.transfer.model == "config":
        return config
    if earliest is None:
        model = stored_models.find(config.init_from, "init_from").model
    else:
        model = earliest.first_model()
    run_options = {name: getattr(config.model, name) for name in KEYS_OF_RUN}
    config = dataclasses.replace(config, model=dataclasses.replace(model, **run_options))
    checks.check_values(config)
    return config


def with_dtype(config: Config, latest: Checkpoint | None, mesh: Mesh) -> Config:
    """Resolves `model.dtype=auto`.

    A resumed run keeps the dtype of its checkpoint. A new run gets the dtype for its devices.
    """
    if config.model.dtype == "auto" and latest is not None:
        model = dataclasses.replace(config.model, dtype=latest.config()["model"]["dtype"])
        config = dataclasses.replace(config, model=model)
    platform = mesh.devices.flat[0].platform
    return config.for_platform(platform, devices.on_mesh(mesh, devices.has_bfloat16)())


def _checked_with_rows(config: Config, latest: Checkpoint | None, store: RowStore) -> Config:
    """Resolves durations to steps, and checks that a resumed run fits the config and the rows."""
    resolved = _resolved(config, store)
    if latest is not None and resolved is not config:
        compatibility.check_resumable(latest, resolved)
    if latest is not None:
        compatibility.check_rows(latest, store.manifest)
    return resolved


def _resolved(config: Config, store: RowStore) -> Config:
    """Resolves durations to steps. Process 0 prints a line for each converted duration."""
    resolved, lines = duration_steps.resolve(config, store)
    if jax.process_index() == 0:
        print(*lines, sep="\n", end="\n" * bool(lines), flush=True)
    return resolved


def _choose_attention(config: Config, sizes: memory.Sizes, mesh: Mesh) -> list[str]:
    """Returns lines about which implementations compute attention, and why others do not.

    Raises:
      ConfigError: if no implementation of `model.attention` can compute some layers.
    """
    lengths = {length for by_kind in sizes.lengths for length in by_kind.values()}
    lines: list[str] = devices.on_mesh(mesh, partial(choosing.report, config.model, lengths))()
    return lines


def _with_pair_length(
    config: Config,
    latest: Checkpoint | None,
    vocabulary: Vocabulary | None,
    store: RowStore | None,
) -> Config:
    """Resolves `data.pair_length=auto`. A resumed run keeps the length of its checkpoint."""
    if store is not None:
        return config
    if latest is not None and not config.data.pair_length:
        length = latest.config()["data"]["pair_length"]
        data = dataclasses.replace(config.data, pair_length=length)
        config = dataclasses.replace(config, data=data)
    return with_pair_length(config, processes=jax.process_count(), vocabulary=vocabulary)


def find_source(config: Config) -> StoredModel | None:
    """Finds the model that `init_from` names; None if it names no model.

    Raises:
      ConfigError: if the model does not exist or does not fit the config, or if optimizer moments
        or dictionaries that `transfer` needs are missing.
    """
    if not config.init_from:
        return None
    source = stored_models.find(config.init_from, "init_from")
    compatibility.check_model(source, config)
    if config.transfer.optimizer:
        transfer.check_optimizer(source, config)
    if config.transfer.vocabulary == "matched":
        transfer.dictionaries_of(config.transfer, config.data.languages)
    return source


def find_vocabulary_source(config: Config) -> StoredModel | None:
    """Finds the model whose vocabulary a new run uses.

    It is the model that `init_from` names, or else a model of an objective (`find_models`), or
    None.

    Raises:
      ConfigError: if a model does not exist or does not fit the config (`find_source`,
        `find_models`).
    """
    return find_source(config) or next(iter(find_models(config).values()), None)


def find_models(config: Config) -> dict[tuple[str, str], StoredModel]:
    """Finds the stored models that objectives' states start from, such as teachers.

    Returns:
      The models, by (name of the objective, part of its state).

    Raises:
      ConfigError: if a model does not exist or does not fit the config.
    """
    models = {}
    for name, options in config.objectives_on().items():
        for part, path in options.models().items():
            key = f"objectives.{name}.{part}"
            models[name, part] = stored_models.find(path, key)
            compatibility.check_model(models[name, part], config, f"{key}=")
    return models


def adopt_vocabulary(
    config: Config, model: StoredModel | None, store: RowStore | None, resumes: bool = False
) -> tuple[Config, Vocabulary | None]:
    """Determines the vocabulary of a run.

    The run uses the vocabulary of `model`, unless `transfer.vocabulary=matched`. If the config
    names no vocabulary, the vocabulary of `model` is written into `data.cache`.

    Args:
      model: the model that `init_from` names, or a model of an objective, or the run's checkpoint;
        None without a model.
      store: the rows, if they exist.
      resumes: whether `model` is the checkpoint from which the run resumes.

    Returns:
      (config, vocabulary). The config names the vocabulary in `data.vocabulary`. The vocabulary is
      None if it must first be trained.

    Raises:
      ConfigError: if the vocabulary cannot be read or written, or if `model` has another vocabulary
        than the config names.
    """
    file = store.vocabulary_file if store else config.data.vocabulary
    if model is None or (config.transfer.vocabulary == "matched" and not resumes):
        return config, Vocabulary.load(file) if file else None
    vocabulary = model.vocabulary()
    if file:
        digest = store.manifest.vocabulary_digest if store else Vocabulary.load(file).digest
        if digest != vocabulary.digest:
            key = "rows" if config.data.rows else "vocabulary"
            raise CheckpointError(
                f"{model.folder} has another vocabulary than data.{key}="
                f"{getattr(config.data, key)}; leave data.{key} empty to use the model's vocabulary"
            )
        return config, vocabulary
    path = storage.to_path(config.data.cache) / "vocabularies" / f"{vocabulary.digest[:16]}.model"
    hosts.broadcast(lambda: _write_once(path, vocabulary.model))
    data = dataclasses.replace(config.data, vocabulary=str(path))
    return dataclasses.replace(config, data=data), vocabulary


def check_separator(config: Config, vocabulary: Vocabulary | None) -> None:
    """Checks that the vocabulary has the separator of pairs, if the model needs it.

    Raises:
      ConfigError: if it lacks the separator.
    """
    has_separator = vocabulary is not None and vocabulary.separator
    if "separator" in config.model.pair_marks and not has_separator:
        raise ConfigError(
            "model.pair_marks=separator: the vocabulary has no separator "
            f"({' or '.join(families.separators())}); use a vocabulary that has one "
            "(data.vocabulary or init_from), or remove separator from model.pair_marks"
        )


def _write_once(path: AnyPath, content: bytes) -> None:
    """Writes a file, unless a file with this content exists."""
    with atomic.as_config_error(path):
        if not (path.is_file() and path.read_bytes() == content):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write(path, content)
