"""The state of a run between steps.

Of its values, only `progress.step` determines batches and random keys.
"""

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
from xlj.data.rows.store import Corpus
from xlj.io.hashing import name_hash
from xlj.models import encoder
from xlj.objectives.objective import LossSums, build_all
from xlj.optimizers import multipliers
from xlj.sharding.devices import RULES
from xlj.sharding.meshes import compiler_options
from xlj.sharding.trees import abstract_like, replicated, shardings


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Progress:
    """Counters and sums of a run, each a scalar."""

    step: jax.Array
    """Number of finished steps, int32."""
    skipped: jax.Array
    """Number of steps that were skipped, since their loss or gradient was not finite, int32."""
    skipped_in_a_row: jax.Array
    """Number of consecutive skipped steps up to the latest step, int32."""
    steps_since_log: jax.Array
    """Number of steps in the sums below (`loss`, `gradient_norm`, `losses`), int32. These are the
    steps since the last line of training metrics, without skipped steps."""
    loss: jax.Array
    """Sum of the steps' total losses, float32."""
    gradient_norm: jax.Array
    """Sum of the steps' gradient norms, float32."""
    losses: dict[str, LossSums]
    """Sums of each loss, float32. Objectives of all phases have entries, including inactive
    ones."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """Parameters, their average, progress, and the states of the optimizer and of objectives."""

    params: encoder.Params
    optimizer: optimizers.OptState
    objectives: dict[str, PyTree]
    """The states of objectives, by name; objectives without a state have no entry."""
    progress: Progress
    average: encoder.Params = dataclasses.field(default_factory=dict)
    """The moving average of the parameters; empty without `optimizer.average`."""

    def items(self) -> dict[str, PyTree]:
        """Returns the items of the state, by the names that checkpoints use."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def init(config: Config, corpus: Corpus, seed: ArrayLike) -> State:
    """Returns a new state.

    The random key of each part of the parameters depends on the name of the part. So adding an
    objective does not change the initial weights of other parts.

    Args:
      seed: of the initial weights, uint32. The function does not read `train.seed`.
    """
    objectives = build_all(config, corpus)
    rng = jax.random.key(seed)
    params = encoder.init(rng, config.model, corpus.vocabulary_size, len(corpus.languages))
    parts = {name: make for o in objectives.values() for name, make in o.parts.items()}
    for name, make in sorted(parts.items()):
        params[name] = make(jax.random.fold_in(rng, jnp.uint32(name_hash(name) & 0xFFFFFFFF)))
    states = {name: objective.init_state(params) for name, objective in objectives.items()}
    no_steps, zero = jnp.zeros((), jnp.int32), jnp.zeros(())
    sums = LossSums(zero, zero, zero)
    return State(
        params=params,
        optimizer=optimizers.make(config).init(params),
        objectives={name: state for name, state in states.items() if state},
        progress=Progress(
            step=no_steps,
            skipped=no_steps,
            skipped_in_a_row=no_steps,
            steps_since_log=no_steps,
            loss=zero,
            gradient_norm=zero,
            losses={loss: sums for o in objectives.values() for loss in o.losses},
        ),
        average=params if config.optimizer.average else {},
    )


def jitted_init(
    config: Config, corpus: Corpus, mesh: Mesh, sharding: State
) -> Callable[[ArrayLike], State]:
    """Returns a jitted function (seed, uint32) -> new state on a mesh.

    Args:
      sharding: of each leaf of the state.
    """
    options = compiler_options(mesh)
    make = partial(init, config, corpus)
    return jax.jit(make, out_shardings=sharding, compiler_options=options)


def abstract(config: Config, corpus: Corpus, mesh: Mesh) -> State:
    """Returns the shape, dtype and sharding of every leaf of the state.

    Moments and copies of parameters have the sharding of their parameters.

    Raises:
      ConfigError: if a multiplier of the optimizer matches no parameter.
    """
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
    """Returns the sharding of every leaf of the state."""
    return jax.tree.map(lambda leaf: leaf.sharding, abstract(config, corpus, mesh))


def copy_for_evaluation(state: State) -> Callable[[], State]:
    """Copies the parts of a state that evaluations read: all parts but the optimizer's state.

    For GPUs and TPUs, the copy is in the host's memory.

    Returns:
      A function that puts the copy on the devices and returns it as a state.
    """
    items = {name: part for name, part in state.items().items() if name != "optimizer"}
    where = jax.tree.map(lambda leaf: leaf.sharding, items)
    if jax.tree.leaves(where)[0].mesh.devices.flat[0].platform == "cpu":
        copies = jax.jit(lambda items: jax.tree.map(jnp.copy, items), out_shardings=where)(items)
        return lambda: State(optimizer=(), **copies)
    on_host = jax.tree.map(lambda sharding: sharding.with_memory_kind("pinned_host"), where)
    copies = jax.device_put(items, on_host)
    return lambda: State(optimizer=(), **jax.device_put(copies, where))


def restart_sums(progress: Progress) -> Progress:
    """Returns the progress with the sums since the last line of metrics set to zero."""
    names = ("steps_since_log", "loss", "gradient_norm", "losses")
    sums = {name: getattr(progress, name) for name in names}
    return dataclasses.replace(progress, **jax.tree.map(jnp.zeros_like, sums))
