"""The first state of a run: its latest checkpoint's, or fresh, with what other models give."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from xlj.checkpoints import compatibility, reading
from xlj.checkpoints.reading import CheckpointError
from xlj.checkpoints.stored_models import StoredModel
from xlj.contracts.arrays import Tree
from xlj.data.rows.corpus import Corpus
from xlj.models.encoder import Params
from xlj.objectives import build_all
from xlj.sharding.trees import named_leaves
from xlj.training import state as states
from xlj.training import transfer
from xlj.training.start import Start
from xlj.training.state import State


def first_state(start: Start, abstract: State) -> State:
    """The latest checkpoint's state, else fresh weights, else those of `init_from`.

    Args:
      abstract: its shapes, types and shardings.

    Raises:
      CheckpointError: if a checkpoint does not fit the config or the rows, or is damaged.
    """
    if start.latest is not None:
        return State(**reading.restore(start.latest, abstract.parts()))
    config, corpus = start.config, Corpus.of(start.store)
    sharding = jax.tree.map(lambda leaf: leaf.sharding, abstract)
    seed = np.uint32(config.train.seed)
    state = states.jitted_init(config, corpus, start.mesh, sharding)(seed)
    if start.source is not None:
        params = _transferred(start, start.source, corpus, state.params)
        objectives = build_all(config, corpus)
        of_objectives = {name: objectives[name].init_state(params) for name in state.objectives}
        # Copies: a step donates its state, and no buffer can be donated twice.
        copies = jax.device_put(jax.tree.map(jnp.copy, of_objectives), sharding.objectives)
        average = jax.tree.map(jnp.copy, params) if state.average else {}
        state = dataclasses.replace(state, params=params, objectives=copies, average=average)
        if config.transfer.optimizer:
            moments = _moments(start, start.source, corpus, abstract.optimizer)
            state = dataclasses.replace(state, optimizer=moments)
    for (name, part), model in start.models.items():
        of_objective, key = state.objectives[name], f"objectives.{name}.{part}"
        of_objective[part] = _encoder_of(start, model, key, of_objective[part])
    return state


def _transferred(start: Start, source: StoredModel, corpus: Corpus, fresh: Params) -> Params:
    """The fresh parameters with those of `init_from` in their place; prints what was taken."""
    config, matches = start.config, None
    if config.transfer.vocabulary == "matched":
        matches = transfer.matches_of(
            source.vocabulary(), start.vocabulary, config.transfer, corpus.languages
        )
    if jax.process_index() == 0:
        if source.report:
            tqdm.write(f"init_from: {source.report}")
        for change in compatibility.rotary_changes(source, config):
            tqdm.write(f"init_from: {change} (positions are read with the new value)")
        if matches is not None:
            tqdm.write("init_from: pieces, and tokens of the text, by what they start from\n")
            tqdm.write(f"{transfer.report(matches, start.store)}\n")
    params = source.params(start.mesh)
    return transfer.taken(config, source, params, fresh, corpus.languages, matches)


def _moments(start: Start, source: StoredModel, corpus: Corpus, abstract: Tree) -> Tree:
    """The optimizer's state of `init_from`, refused unless each moment is of the same parameter."""
    checkpoint = transfer.check_optimizer(source, start.config)
    languages = corpus.languages
    if start.config.model.language_embeddings != "none" and source.languages != languages:
        raise CheckpointError(
            f"transfer.optimizer: the language embeddings of init_from={source.folder} are of "
            f"{','.join(source.languages)}, not {','.join(languages)}; leave that key out"
        )
    return reading.restore(checkpoint, {"optimizer": abstract})["optimizer"]


def _encoder_of(start: Start, model: StoredModel, key: str, fresh: Params) -> Params:
    """The encoder of a stored model, as a part of an objective's state.

    Args:
      key: of the config, which names the model.
      fresh: the part as it is without the model.
    """
    if model.vocabulary().digest != start.vocabulary.digest:
        raise CheckpointError(f"{key}={model.folder} has another vocabulary than the rows")
    old, new = named_leaves(model.params(start.mesh)), named_leaves(fresh)
    if start.config.model.language_embeddings == "predicted":  # the other model predicts nothing
        old.setdefault("embeddings/language", new["embeddings/language"])
    wrong = [name for name in new if name not in old or old[name].shape != new[name].shape]
    if wrong:
        raise CheckpointError(
            f"{key}={model.folder} is of another model: {', '.join(wrong[:4])} differ"
        )
    return jax.tree.unflatten(jax.tree.structure(fresh), [old[name] for name in new])
