"""The first state of a run, fresh or from a checkpoint; refuses checkpoints of other runs."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from xlj.checkpoints import differences, reading, stored_models
from xlj.checkpoints.differences import FREE_AT_START, Difference
from xlj.checkpoints.reading import Checkpoint, CheckpointError
from xlj.checkpoints.stored_models import StoredModel
from xlj.config import Config, as_tree
from xlj.config.fields import ConfigTree
from xlj.contracts.arrays import Tree
from xlj.data.rows.corpus import Corpus
from xlj.data.rows.store import RowStore
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic
from xlj.io.storage import AnyPath
from xlj.models.encoder import Params
from xlj.objectives import build_all
from xlj.sharding.meshes import mesh_of
from xlj.sharding.trees import named_leaves
from xlj.training import state as states
from xlj.training import transfer
from xlj.training.state import State


def check_resumable(config: Config, workdir: AnyPath) -> Checkpoint | None:
    """The checkpoint that a run goes on from, if there is any. Refuses one that another config
    wrote, and to begin without a model that an objective's state starts from.

    Raises:
      CheckpointError: it names what differs, and what to do.
    """
    latest = reading.latest(workdir)
    if latest is None:
        for (name, part), path in _models(config).items():
            stored_models.find(path, f"objectives.{name}.{part}")
        return None
    _refuse_changed(latest, differences.config_differences(latest, config))
    if config.train.passes:  # which become steps once there are rows
        return latest
    if latest.step > config.train.steps:
        raise CheckpointError(f"{latest.folder} is beyond train.steps={config.train.steps}")
    before = _decay_start(latest.config())
    planned = latest.config()["train"]["steps"]
    if before is not None and before < latest.step < config.train.steps != planned:
        raise CheckpointError(
            f"{latest.folder} is in the decay of a run of {planned} "
            f"steps, which began at step {before}; to train for train.steps="
            f"{config.train.steps}, copy {latest.folder.parent / str(before)} to "
            "ANOTHER_WORKDIR/checkpoints/ and go on there"
        )
    return latest


def first_state(
    config: Config, latest: Checkpoint | None, store: RowStore, abstract: State
) -> State:
    """The latest checkpoint's state, else fresh weights, else those of `init_from`.

    Args:
      abstract: its shapes, types and shardings.

    Raises:
      CheckpointError: if a checkpoint does not fit the config or the rows, or is damaged.
    """
    corpus = Corpus.of(store)
    if latest is not None:
        _refuse_rows(latest, differences.row_differences(latest, store.manifest))
        return State(**reading.restore(latest, abstract.parts()))
    mesh, sharding = mesh_of(abstract), jax.tree.map(lambda leaf: leaf.sharding, abstract)
    state = states.jitted_init(config, corpus, mesh, sharding)()
    if config.init_from:
        params = _transferred(config, store, corpus, state.params, mesh)
        objectives = build_all(config, corpus)
        kept = {name: objectives[name].init_state(params) for name in state.objectives}
        # Copies: a step donates its state, and no buffer can be donated twice.
        kept = jax.device_put(jax.tree.map(jnp.copy, kept), sharding.objectives)
        state = dataclasses.replace(state, params=params, objectives=kept)
    if config.transfer.optimizer:
        moments = _moments(config, corpus, abstract.optimizer)
        state = dataclasses.replace(state, optimizer=moments)
    for (name, part), path in _models(config).items():
        kept, key = state.objectives[name], f"objectives.{name}.{part}"
        kept[part] = _encoder_of(path, key, config, kept[part], store, mesh)
    return state


def adopt_vocabulary(config: Config, workdir: AnyPath | None = None) -> Config:
    """The config with the vocabulary of the model to start from, where it names none itself.

    A run that is resumed takes it from its own checkpoint in `workdir`; `init_from` may be gone.

    Raises:
      CheckpointError: if there is no such model, or it does not fit the config.
    """
    if not config.init_from:
        return config
    latest = reading.latest(workdir) if workdir else None
    if latest is not None:
        source, resumed = stored_models.find(latest.folder), True
    else:
        source, resumed = stored_models.find(config.init_from, "init_from"), False
    _refuse_model(source, config, "")
    if config.transfer.optimizer and not resumed:
        _check_optimizer(source)
    if config.transfer.vocabulary == "matched" and not resumed:
        transfer.dictionaries_of(config.transfer, config.data.languages)  # errors come early
        return config  # the run has a vocabulary of its own
    vocabulary = source.vocabulary()
    if config.data.vocabulary:
        if Vocabulary.load(config.data.vocabulary).digest != vocabulary.digest:
            key = "data.rows" if config.data.rows else "data.vocabulary"
            raise CheckpointError(
                f"{source.folder} has another vocabulary than {key}="
                f"{getattr(config.data, key.removeprefix('data.'))}; leave that key empty to take "
                "the model's own"
            )
        return config
    path = Path(config.data.cache).expanduser() / "vocabularies" / f"{vocabulary.digest[:16]}.model"
    if jax.process_index() == 0 and not (path.is_file() and path.read_bytes() == vocabulary.model):
        with atomic.mendable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write(path, vocabulary.model)
    if jax.process_count() > 1:  # the others read it
        multihost_utils.sync_global_devices("vocabulary")
    return dataclasses.replace(config, data=dataclasses.replace(config.data, vocabulary=str(path)))


def pre_decay_steps(config: Config, workdir: AnyPath) -> tuple[int, ...]:
    """Steps whose checkpoints always stay: where wsd's decay begins, in this run and before."""

    configs = [*(found.config() for found in reading.every(workdir)), as_tree(config)]
    starts = map(_decay_start, configs)
    return tuple(sorted({start for start in starts if start is not None}))


def unmeasured_steps(workdir: AnyPath) -> tuple[int, ...]:
    """Steps whose checkpoints were saved before what was due there had been measured."""
    return tuple(found.step for found in reading.every(workdir) if not found.meta["measured"])


def _decay_start(config: ConfigTree) -> int | None:
    """The step at which wsd's decay begins under a config, as nested dicts; None without one."""
    if config["optimizer"]["schedule"] != "wsd":
        return None
    return config["train"]["steps"] - config["optimizer"]["decay_steps"]


def _refuse_changed(checkpoint: Checkpoint, found: list[Difference]) -> None:
    if found:
        keys = list(dict.fromkeys(difference.allowed_by for difference in found))
        allow = f"To go on with that, add --config.train.allow_change={','.join(keys)}. "
        raise CheckpointError(
            f"{checkpoint.folder} was written by another run: {'; '.join(map(str, found))}. "
            f"{allow if all(keys) else ''}{_start_from(checkpoint)}"
        )


def _refuse_rows(checkpoint: Checkpoint, found: list[str]) -> None:
    if found:
        raise CheckpointError(
            f"{checkpoint.folder} was written by another run: {'; '.join(found)}. "
            f"{_start_from(checkpoint)}, and --config.transfer.optimizer=True to keep the "
            "optimizer's moments"
        )


def _start_from(checkpoint: Checkpoint) -> str:
    return (
        "To start anew from these parameters, take another --workdir with "
        f"--config.init_from={checkpoint.folder}"
    )


def _transferred(
    config: Config, store: RowStore, corpus: Corpus, fresh: Params, mesh: Mesh
) -> Params:
    """The fresh parameters with those of `init_from` in their place; tells what was taken."""
    source = stored_models.find(config.init_from)
    matches = None
    if config.transfer.vocabulary == "matched":
        new = Vocabulary.load(store.vocabulary_file)
        matches = transfer.matches_of(source.vocabulary(), new, config.transfer, corpus.languages)
    if jax.process_index() == 0:
        if source.report:
            print(f"init_from: {source.report}")
        if matches is not None:
            print("init_from: pieces, and tokens of the text, by what they start from\n")
            print(f"{transfer.report(matches, store)}\n")
    return transfer.taken(config, source, source.params(mesh), fresh, corpus.languages, matches)


def _refuse_model(source: StoredModel, config: Config, key: str) -> None:
    """Refuses a model that computes something else; `key` of the config names it."""
    found = differences.model_differences(source.model, config.model, FREE_AT_START)
    if found:
        raise CheckpointError(
            f"{key}{source.folder} is of another model: {'; '.join(map(str, found))}"
        )


def _check_optimizer(source: StoredModel) -> Checkpoint:
    """The checkpoint of a model, refused if there are no moments in it."""
    if source.checkpoint is None or "optimizer" not in source.checkpoint.meta["tensors"]:
        raise CheckpointError(
            f"transfer.optimizer: init_from={source.folder} holds parameters only, as converted "
            "models do; leave that key out, or name a checkpoint of training"
        )
    return source.checkpoint


def _moments(config: Config, corpus: Corpus, abstract: Tree) -> Tree:
    """The optimizer's state of `init_from`, refused unless each moment is of the same parameter."""
    source = stored_models.find(config.init_from, "init_from")
    found = _check_optimizer(source)
    if config.model.language_embeddings != "none" and source.languages != corpus.languages:
        raise CheckpointError(
            f"transfer.optimizer: the language embeddings of init_from={source.folder} are of "
            f"{','.join(source.languages)}, not {','.join(corpus.languages)}; leave that key out"
        )
    return reading.restore_optimizer(found, abstract)


def _models(config: Config) -> dict[tuple[str, str], str]:
    """The stored models that objectives' states start from: (objective, part) -> path."""
    return {
        (name, part): path
        for name, options in config.objectives_on().items()
        for part, path in options.models().items()
    }


def _encoder_of(
    path: str, key: str, config: Config, wanted: Params, store: RowStore, mesh: Mesh
) -> Params:
    """The encoder of a stored model, as a part of an objective's state.

    Args:
      key: of the config, which names the model.
      wanted: the part as it is without the model.
    """
    model = stored_models.find(path, key)
    if model.vocabulary().digest != store.manifest.vocabulary_digest:
        raise CheckpointError(f"{key}={model.folder} has another vocabulary than the rows")
    _refuse_model(model, config, f"{key}=")
    old, new = named_leaves(model.params(mesh)), named_leaves(wanted)
    if config.model.language_embeddings == "predicted":  # the other model predicts nothing
        old.setdefault("embeddings/language", new["embeddings/language"])
    wrong = [name for name in new if name not in old or old[name].shape != new[name].shape]
    if wrong:
        raise CheckpointError(
            f"{key}={model.folder} is of another model: {', '.join(wrong[:4])} differ"
        )
    return jax.tree.unflatten(jax.tree.structure(wanted), [old[name] for name in new])
