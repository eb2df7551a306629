"""All that a run carries from step to step. Batches and random keys follow from `step` alone."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from xlj.config import Config
from xlj.data.rows.corpus import Corpus
from xlj.io.hashing import name_hash
from xlj.models import encoder
from xlj.objectives import build_all
from xlj.objectives.loss_sums import LossSums
from xlj.training import optimizer
from xlj.training.partitioning import RULES, replicated, shardings


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Progress:
    """Counters and sums of a run, each a scalar."""

    step: jax.Array
    """int32, steps done."""
    skipped: jax.Array
    """int32, steps skipped because their loss or gradient was not finite."""
    skipped_in_a_row: jax.Array
    """int32, how many of the latest steps were skipped."""
    steps_since_log: jax.Array
    """int32, steps that the sums below are over."""
    loss: jax.Array
    """float32, sum of the steps' losses since the last line of metrics."""
    gradient_norm: jax.Array
    """float32, sum of the steps' gradient norms since then."""
    losses: dict[str, LossSums]
    """Of each loss since then; of objectives that are off too, since a later phase may use them."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """Parameters, the optimizer's state, what objectives keep, and progress."""

    params: encoder.Params
    optimizer: optax.OptState
    objectives: dict[str, Any]
    """The state of each objective that has one, e.g. XLCO's queue."""
    progress: Progress


def init(config: Config, corpus: Corpus) -> State:
    """A fresh state; the initial weights follow from `train.seed`.

    Each part of the parameters has a random key of its own, so that adding an objective changes no
    other part's initial weights.
    """
    objectives = build_all(config, corpus)
    rng = jax.random.key(config.train.seed)
    params = encoder.init(rng, config.model, corpus.vocabulary_size, len(corpus.languages))
    parts = {name: make for o in objectives.values() for name, make in o.parts.items()}
    for name, make in sorted(parts.items()):
        params[name] = make(jax.random.fold_in(rng, jnp.uint32(name_hash(name) & 0xFFFFFFFF)))
    states = {name: objective.init_state(params) for name, objective in objectives.items()}
    zero = jnp.zeros((), jnp.int32)
    progress = Progress(
        step=zero,
        skipped=zero,
        skipped_in_a_row=zero,
        steps_since_log=zero,
        loss=jnp.zeros(()),
        gradient_norm=jnp.zeros(()),
        losses={loss: zero_loss_sums() for o in objectives.values() for loss in o.losses},
    )
    return State(
        params=params,
        optimizer=optimizer.transform(config.optimizer).init(params),
        objectives={name: state for name, state in states.items() if state},
        progress=progress,
    )


def zero_loss_sums() -> LossSums:
    """Loss sums of nothing."""
    return LossSums(sum=jnp.zeros(()), count=jnp.zeros(()), correct=jnp.zeros(()))


def sharding(config: Config, corpus: Corpus, mesh: Mesh) -> State:
    """The sharding of every leaf of the state: moments and copies of parameters live where the
    parameters do."""
    abstract = jax.eval_shape(lambda: init(config, corpus))
    rules = RULES + tuple(r for o in build_all(config, corpus).values() for r in o.rules)
    of_params = shardings(abstract.params, mesh, rules)
    of_optimizer = optax.tree.map_params(
        optimizer.transform(config.optimizer),
        lambda _, where: where,
        abstract.optimizer,
        of_params,
        transform_non_params=lambda _: replicated(mesh),
    )
    return State(
        params=of_params,
        optimizer=of_optimizer,
        objectives=shardings(abstract.objectives, mesh, rules),
        progress=jax.tree.map(lambda _: replicated(mesh), abstract.progress),
    )


def restart_sums(progress: Progress) -> Progress:
    """Progress with the sums since the last line of metrics set to zero."""
    return dataclasses.replace(
        progress,
        steps_since_log=jnp.zeros_like(progress.steps_since_log),
        loss=jnp.zeros_like(progress.loss),
        gradient_norm=jnp.zeros_like(progress.gradient_norm),
        losses=jax.tree.map(jnp.zeros_like, progress.losses),
    )
