"""The first state of a run: restored from its checkpoint, or new, with weights of other models."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from xlj.checkpoints import compatibility, reading
from xlj.checkpoints.reading import CheckpointError
from xlj.checkpoints.stored_models import StoredModel
from xlj.contracts.arrays import Tree
from xlj.data.rows.store import Corpus
from xlj.objectives.objective import build_all
from xlj.sharding.trees import Params, named_leaves
from xlj.training import state as states
from xlj.training import transfer
from xlj.training.start import Start
from xlj.training.state import State


def first_state(start: Start, abstract: State) -> State:
    """Returns the state of the latest checkpoint, or a new state with the weights of `init_from`.

    Args:
      abstract: shapes, dtypes and shardings of the state.

    Raises:
      CheckpointError: if a checkpoint does not fit the config or the rows, or is damaged.
    """
    if start.latest is not None:
        return State(**reading.restore(start.latest, abstract.items()))
    config, corpus = start.config, Corpus.of(start.store)
    sharding = jax.tree.map(lambda leaf: leaf.sharding, abstract)
    seed = np.uint32(config.train.seed)
    state = states.jitted_init(config, corpus, start.mesh, sharding)(seed)
    if start.source is not None:
        params = _transfer_params(start, start.source, corpus, state.params)
        objectives = build_all(config, corpus)
        of_objectives = {name: objectives[name].init_state(params) for name in state.objectives}
        # The states of objectives may share buffers with the parameters. They are copied, since a
        # step donates all buffers of its state, and no buffer may be donated twice.
        copies = jax.device_put(jax.tree.map(jnp.copy, of_objectives), sharding.objectives)
        average = jax.tree.map(jnp.copy, params) if state.average else {}
        state = dataclasses.replace(state, params=params, objectives=copies, average=average)
        if config.transfer.optimizer:
            moments = _read_moments(start, start.source, corpus, abstract.optimizer)
            state = dataclasses.replace(state, optimizer=moments)
    for (name, part), model in start.models.items():
        of_objective, key = state.objectives[name], f"objectives.{name}.{part}"
        of_objective[part] = _read_encoder(start, model, key, of_objective[part])
    return state


def _transfer_params(start: Start, source: StoredModel, corpus: Corpus, fresh: Params) -> Params:
    """Replaces new parameters by parameters of `init_from`, and prints a report."""
    config, matches = start.config, None
    if config.transfer.vocabulary == "matched":
        matches = transfer.matches_of(
            source.vocabulary(), start.vocabulary, config.transfer, corpus.languages
        )
    if jax.process_index() == 0:
        if source.report:
            tqdm.write(f"init_from: {source.report}")
        for change in compatibility.rotary_changes(source, config):
            tqdm.write(f"init_from: {change} (the run uses the new value)")
        if matches is not None:
            tqdm.write("init_from: share of pieces, and of tokens of the text, by matching rule\n")
            tqdm.write(f"{transfer.report(matches, start.store)}\n")
    params = source.params(start.mesh)
    return transfer.transfer_parameters(config, source, params, fresh, corpus.languages, matches)


def _read_moments(start: Start, source: StoredModel, corpus: Corpus, abstract: Tree) -> Tree:
    """Reads the optimizer's state of `init_from`.

    Raises:
      CheckpointError: if the model has no moments of the run's optimizer, or has embeddings of
        other languages than the run.
    """
    checkpoint = transfer.check_optimizer(source, start.config)
    languages = corpus.languages
    if start.config.model.language_embeddings != "none" and source.languages != languages:
        raise CheckpointError(
            f"transfer.optimizer: init_from={source.folder} has embeddings of the languages "
            f"{','.join(source.languages)}, but the run has embeddings of {','.join(languages)}; "
            "remove transfer.optimizer"
        )
    return reading.restore(checkpoint, {"optimizer": abstract})["optimizer"]


def _read_encoder(start: Start, model: StoredModel, key: str, fresh: Params) -> Params:
    """Reads the encoder of a stored model, as a part of an objective's state.

    Args:
      key: the config key that names the model, for error messages.
      fresh: the initial part of the state, for its names and shapes.

    Raises:
      CheckpointError: if the model has another vocabulary or architecture than the run.
    """
    if model.vocabulary().digest != start.vocabulary.digest:
        raise CheckpointError(
            f"{key}={model.folder} has another vocabulary than the rows; use a model with the "
            "vocabulary of the rows"
        )
    old, new = named_leaves(model.params(start.mesh)), named_leaves(fresh)
    # With model.language_embeddings=predicted, only tokens to predict have language embeddings. The
    # stored model predicts no tokens here, so it may lack the table.
    if start.config.model.language_embeddings == "predicted":
        old.setdefault("embeddings/language", new["embeddings/language"])
    mismatched = [name for name in new if name not in old or old[name].shape != new[name].shape]
    if mismatched:
        raise CheckpointError(
            f"{key}={model.folder} has another architecture than the config: these parameters are "
            f"missing or have another shape: {', '.join(mismatched[:4])}; use a model of the same "
            "sizes"
        )
    return jax.tree.unflatten(jax.tree.structure(fresh), [old[name] for name in new])
