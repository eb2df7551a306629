"""All that a run carries from step to step. Batches and random keys follow from `step` alone."""

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import ArrayLike

from xlj import optimizers
from xlj.config import Config
from xlj.contracts.arrays import PyTree
from xlj.data.rows.corpus import Corpus
from xlj.io.hashing import name_hash
from xlj.models import encoder
from xlj.objectives import build_all
from xlj.objectives.objective import LossSums
from xlj.optimizers import multipliers
from xlj.sharding.meshes import compiler_options
from xlj.sharding.rules import RULES
from xlj.sharding.trees import abstract_like, replicated, shardings


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
    """Parameters, the optimizer's state, what objectives keep, progress, and the average."""

    params: encoder.Params
    optimizer: optimizers.OptState
    objectives: dict[str, PyTree]
    """The state of each objective that has one, e.g. XLCO's queue."""
    progress: Progress
    average: encoder.Params = dataclasses.field(default_factory=dict)
    """The moving average of the parameters; empty without `optimizer.average`."""

    def parts(self) -> dict[str, PyTree]:
        """The parts by name, as a checkpoint has them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def init(config: Config, corpus: Corpus, seed: ArrayLike) -> State:
    """A fresh state; the initial weights follow from the seed, which counts in place of the
    config's.

    Each part of the parameters has a random key of its own, so that adding an objective changes no
    other part's initial weights.
    """
    objectives = build_all(config, corpus)
    rng = jax.random.key(seed)
    params = encoder.init(rng, config.model, corpus.vocabulary_size, len(corpus.languages))
    parts = {name: make for o in objectives.values() for name, make in o.parts.items()}
    for name, make in sorted(parts.items()):
        params[name] = make(jax.random.fold_in(rng, jnp.uint32(name_hash(name) & 0xFFFFFFFF)))
    states = {name: objective.init_state(params) for name, objective in objectives.items()}
    none, nothing = jnp.zeros((), jnp.int32), jnp.zeros(())
    sums = LossSums(nothing, nothing, nothing)
    return State(
        params=params,
        optimizer=optimizers.make(config).init(params),
        objectives={name: state for name, state in states.items() if state},
        progress=Progress(
            step=none,
            skipped=none,
            skipped_in_a_row=none,
            steps_since_log=none,
            loss=nothing,
            gradient_norm=nothing,
            losses={loss: sums for o in objectives.values() for loss in o.losses},
        ),
        average=params if config.optimizer.average else {},
    )


def jitted_init(
    config: Config, corpus: Corpus, mesh: Mesh, sharding: State
) -> Callable[[ArrayLike], State]:
    """`init` of a seed, uint32, on a mesh, jitted; `sharding` is of the state."""
    options = compiler_options(mesh)
    make = partial(init, config, corpus)
    return jax.jit(make, out_shardings=sharding, compiler_options=options)


def abstract(config: Config, corpus: Corpus, mesh: Mesh) -> State:
    """Shape, type and sharding of every leaf of the state: moments and copies of parameters live
    where the parameters do. Raises a `ConfigError` if multipliers of the optimizer name none."""
    shapes = jax.eval_shape(lambda: init(config, corpus, 0))
    multipliers.check(config.optimizer, shapes.params)
    rules = RULES + tuple(r for o in build_all(config, corpus).values() for r in o.rules)
    of_params = shardings(shapes.params, mesh, rules)
    of_optimizer = optimizers.state_shardings(
        shapes.optimizer, shapes.params, of_params, replicated(mesh)
    )
    of_objectives = shardings(shapes.objectives, mesh, rules)
    of_progress = jax.tree.map(lambda _: replicated(mesh), shapes.progress)
    of_average = of_params if shapes.average else {}
    where = State(of_params, of_optimizer, of_objectives, of_progress, of_average)
    return abstract_like(shapes, where)


def sharding(config: Config, corpus: Corpus, mesh: Mesh) -> State:
    """The sharding of every leaf of the state."""
    return jax.tree.map(lambda leaf: leaf.sharding, abstract(config, corpus, mesh))


def set_aside(state: State) -> Callable[[], State]:
    """Copies what evaluations read of a state, into the host's memory where devices have their own.

    Returns:
      What puts the copy on the devices again: a state without the optimizer's.
    """
    parts = {name: part for name, part in state.parts().items() if name != "optimizer"}
    where = jax.tree.map(lambda leaf: leaf.sharding, parts)
    if jax.tree.leaves(where)[0].mesh.devices.flat[0].platform == "cpu":
        copies = jax.jit(lambda parts: jax.tree.map(jnp.copy, parts), out_shardings=where)(parts)
        return lambda: State(optimizer=(), **copies)
    on_host = jax.tree.map(lambda sharding: sharding.with_memory_kind("pinned_host"), where)
    copies = jax.device_put(parts, on_host)
    return lambda: State(optimizer=(), **jax.device_put(copies, where))


def restart_sums(progress: Progress) -> Progress:
    """Progress with the sums since the last line of metrics set to zero."""
    names = ("steps_since_log", "loss", "gradient_norm", "losses")
    sums = {name: getattr(progress, name) for name in names}
    return dataclasses.replace(progress, **jax.tree.map(jnp.zeros_like, sums))
