"""One training step: corrupt, add targets, count, sum gradients over microbatches, update.

Random keys are functions of (seed, purpose, step, row), the same on any number of devices.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import ArrayLike

from xlj import optimizers
from xlj.config import Config, Optimizer
from xlj.io.hashing import name_hash
from xlj.objectives.objective import Argument, LossSums, Objective, Result, Rows
from xlj.optimizers import Rates, multipliers
from xlj.optimizers.wrappers import clip, either, update_average
from xlj.sharding import devices, trees
from xlj.sharding.devices import OTHERS, REPLICATED, RULES, on_mesh
from xlj.sharding.trees import Params
from xlj.training.state import Progress, State

Batch = Mapping[str, Rows]
"""The rows of each objective, by its name."""


class TrainStep(Protocol):
    """A training step, not jitted.

    Seed and rates are arguments. So runs that differ only in seed or rates compile to the same
    program.
    """

    def __call__(
        self,
        state: State,
        batch: Batch,
        seed: ArrayLike,
        rates: Rates,
        filled: ArrayLike | None = None,
        /,
    ) -> State:
        """Returns the next state.

        Args:
          batch: the rows of all objectives that are active.
          seed: `train.seed`, uint32 [].
          rates: learning rate and weight decay of the step.
          filled: the number of microbatches that have rows, int32 []; None if all have rows. The
            rows of all other microbatches must be padding.
        """


def make_train_step(
    config: Config,
    objectives: Mapping[str, Objective],
    mesh: Mesh,
    begins: Mapping[str, int] | None = None,
) -> TrainStep:
    """Builds the training step of a phase, not jitted.

    A step counts the predictions of all microbatches before it computes a gradient. So the sum of
    the microbatches' gradients is the gradient of the whole batch. If the weights of all losses are
    0, a step updates only the states of objectives and the progress.

    Args:
      config: of the phase.
      objectives: the active objectives, by name.
      begins: for each objective that the phase switches on, the step at which it begins.
    """
    weights = {name: loss.weight for o in objectives.values() for name, loss in o.losses.items()}
    every_microbatch = Microbatches(
        config.train.gradient_accumulation_steps, whole=config.mesh.gather == "step"
    )
    rules = tuple(rule for o in objectives.values() for rule in o.rules)
    loss_of = partial(_loss_of, objectives, config.optimizer)
    optimizer = optimizers.make(config)

    def train_step(
        state: State, batch: Batch, seed: ArrayLike, rates: Rates, filled: ArrayLike | None = None
    ) -> State:
        microbatches = every_microbatch.with_filled(filled)
        state = _start_objectives(objectives, begins, state)
        inputs, rngs = with_targets(objectives, seed, microbatches, state, batch)
        counts = _counts(objectives, inputs)
        scales = loss_scales(config.objectives.normalisation, weights, counts)
        rows = {name: (inputs[name], rngs[name]) for name in inputs}
        shared = state.params, (state.objectives, scales)
        layout = trees.layout(shared, (*RULES, *rules, *OTHERS))
        if any(weights.values()):
            gradient_of = jax.value_and_grad(loss_of, has_aux=True)
            (loss, losses), gradients = microbatches.sum(
                gradient_of, shared, rows, layout, (REPLICATED, layout[0])
            )
            gradients, norm = clip(gradients, config.optimizer.clip_norm)
            finite = jnp.isfinite(loss) & jnp.isfinite(norm)
            updates, new_optimizer = optimizer.update(
                gradients, state.optimizer, state.params, finite=finite, rates=rates
            )
            new_params = either(finite, jax.tree.map(jnp.add, state.params, updates), state.params)
        else:
            loss, losses = microbatches.sum(loss_of, shared, rows, layout, REPLICATED)
            norm, finite = jnp.zeros(()), jnp.isfinite(loss)
            new_params, new_optimizer = state.params, state.optimizer

        new_objectives = {
            name: objectives[name].update(old, new_params, inputs[name]) if name in inputs else old
            for name, old in state.objectives.items()
        }
        return State(
            params=new_params,
            optimizer=new_optimizer,
            objectives=either(finite, new_objectives, state.objectives),
            progress=_advance(state.progress, finite, loss, norm, losses),
            average=_next_average(config, state, new_params, finite & any(weights.values())),
        )

    return on_mesh(mesh, train_step)


def _counts(
    objectives: Mapping[str, Objective], inputs: Mapping[str, object]
) -> dict[str, jax.Array]:
    """Counts the predictions of each loss in the whole step, float32 [] each."""
    counts: dict[str, jax.Array] = {}
    for name, rows in inputs.items():
        counts |= jax.tree.map(jnp.sum, objectives[name].count(rows))
    return counts


def _next_average(config: Config, state: State, params: Params, changes: jax.Array) -> Params:
    """Returns the moving average of the parameters after a step.

    Args:
      state: before the step.
      params: after the step.
      changes: whether the step changes parameters, bool []; if not, the average does not change.
    """
    steps = state.progress.step - state.progress.skipped
    return update_average(state.average, params, config.optimizer.average, steps, changes)


def _start_objectives(
    objectives: Mapping[str, Objective], begins: Mapping[str, int] | None, state: State
) -> State:
    """Initialises the states of the objectives that begin at this step, from `state.params`.

    States that do not change from step to step (`Objective.evolves`) stay as they are.

    Args:
      begins: for each objective that the phase switches on, the step at which it begins.
    """
    states = dict(state.objectives)
    for name, start in (begins or {}).items():
        if name in states and objectives[name].evolves:
            fresh = objectives[name].init_state(state.params)
            states[name] = either(state.progress.step == start, fresh, states[name])
    return dataclasses.replace(state, objectives=states)


def _loss_of(
    objectives: Mapping[str, Objective],
    options: Optimizer,
    params: Params,
    others: tuple[Mapping[str, object], Mapping[str, jax.Array]],
    part: Mapping[str, tuple[object, jax.Array]],
) -> tuple[jax.Array, dict[str, LossSums]]:
    """Returns the total loss of a microbatch, float32 [], and the sums of each loss, by name.

    Args:
      others: the states of objectives by name, and the factor of each loss (`loss_scales`).
      part: for each objective, the inputs of the microbatch, and a random key for each row, for
        dropout.
    """
    params = multipliers.stop_frozen(options, params)
    states, scales = others
    losses: dict[str, LossSums] = {}
    for name, (inputs, dropout_rngs) in part.items():
        by_row = objectives[name].loss(params, states.get(name, {}), inputs, dropout_rngs)
        losses |= {loss: jax.tree.map(jnp.sum, sums) for loss, sums in by_row.items()}
    total = sum((scales[loss] * losses[loss].sum for loss in losses), jnp.zeros(()))
    return total, losses


class Microbatches:
    """Divides the rows of a step into `microbatches` equal microbatches; no row changes its device.

    Args:
      microbatches: number of microbatches.
      whole: whether each device gathers a whole copy of the shared arguments before it sums
        (`mesh.gather=step`).
      filled: the number of microbatches that have rows, which come first, int32 []; None if all
        have rows. The two cases compile to different programs.
    """

    def __init__(self, count: int, whole: bool = False, filled: ArrayLike | None = None):
        self._count, self._whole, self._filled = count, whole, filled

    def with_filled(self, filled: ArrayLike | None) -> "Microbatches":
        """Returns these microbatches, of which only the first `filled` have rows; None for all."""
        return Microbatches(self._count, self._whole, filled)

    def slots(self, rows: int) -> jax.Array:
        """Returns the index of each row in the global batch, int32 [rows]."""
        return devices.constrain(jnp.arange(rows), "slots")

    def sum(
        self,
        function: Callable[..., Result],
        shared: tuple[object, ...],
        inputs: object,
        layout: object = REPLICATED,
        sums_layout: object = REPLICATED,
    ) -> Result:
        """Returns the sum over microbatches of function(*shared, microbatch).

        Devices that share a copy of the parameters sum over the rows of these devices. The sums of
        different copies are added once, after all microbatches and objectives.

        Args:
          function: (*shared, microbatch) -> a tree of sums over the microbatch's rows.
          shared: arguments that are the same for all microbatches, such as parameters.
          inputs: a tree of arrays [rows, ...].
          layout: partition specifications of `shared`.
          sums_layout: partition specifications of the sums.
        """
        sums = partial(self._sums, function)
        return devices.by_copy(sums, self._whole, (layout, REPLICATED), sums_layout)(
            (shared, self._filled), inputs
        )

    def _sums(
        self,
        function: Callable[..., Result],
        shared_and_filled: tuple[tuple[object, ...], jax.Array | None],
        inputs: object,
    ) -> Result:
        shared, filled = shared_and_filled
        if self._count == 1:
            return function(*shared, inputs)

        def add(sums: Result, part: object) -> tuple[Result, None]:
            return jax.tree.map(jnp.add, sums, function(*shared, part)), None

        split = jax.tree.map(self._split, inputs)
        shapes = jax.eval_shape(function, *shared, jax.tree.map(lambda x: x[0], split))
        zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        if filled is None or self._are_unrolled:
            return jax.lax.scan(add, zeros, split, unroll=devices.unroll_count(self._count))[0]
        return jax.lax.fori_loop(
            0, filled, lambda number, sums: add(sums, _part(split, number))[0], zeros
        )

    def map(self, function: Callable[[Argument], Result], inputs: Argument, /) -> Result:
        """Applies a function of rows to one microbatch after another; returns all rows' results.

        Of the microbatches without rows, only one is computed. The others get a copy of its
        results, which no loss counts.
        """
        if self._count == 1:
            return function(inputs)

        # `jax.lax.map` has no argument to unroll it, so this is a scan without a carry.
        def one(_: None, part: Argument) -> tuple[None, Result]:
            return None, function(part)

        split = jax.tree.map(self._split, inputs)
        if self._filled is None or self._are_unrolled:
            results = jax.lax.scan(one, None, split, unroll=devices.unroll_count(self._count))[1]
        else:
            results = self._map_filled(function, split, self._filled)
        return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), results)

    def _map_filled(
        self, function: Callable[[Argument], Result], split: Argument, filled: ArrayLike
    ) -> Result:
        """Implements `map` for batches of which only some microbatches have rows.

        Args:
          split: a tree of arrays [microbatches, rows / microbatches, ...].
          filled: the number of microbatches that have rows, int32 [].

        Returns:
          The results, a tree of arrays [microbatches, rows / microbatches, ...].
        """
        shapes = jax.eval_shape(function, jax.tree.map(lambda x: x[0], split))
        zeros = jax.tree.map(
            lambda shape: jnp.zeros((self._count, *shape.shape), shape.dtype), shapes
        )

        def one(number: jax.Array, results: Result) -> Result:
            result = function(_part(split, number))
            return jax.tree.map(lambda x, new: x.at[number].set(new), results, result)

        # The last microbatch to compute: the first one without rows, if there is one.
        last = jnp.minimum(filled, self._count - 1)
        results = jax.lax.fori_loop(0, last + 1, one, zeros)
        indices = jnp.minimum(jnp.arange(self._count), last)
        return jax.tree.map(lambda x: x[indices], results)

    @property
    def _are_unrolled(self) -> bool:
        """Whether loops are unrolled, so that all microbatches are computed, with or without rows.

        This is the case on CPUs that share parameters, where collectives in a loop could deadlock
        (`devices.unroll_count`).
        """
        return devices.unroll_count(self._count) > 1

    def _split(self, x: jax.Array) -> jax.Array:
        """Reshapes [rows, ...] -> [microbatches, rows / microbatches, ...].

        Part k gets the rows k, k + microbatches, ..., so each device has rows of every part.
        """
        x = x.reshape(x.shape[0] // self._count, self._count, *x.shape[1:]).swapaxes(0, 1)
        return devices.constrain(x, "microbatches")


def _part(split: Argument, number: jax.Array) -> Argument:
    """Returns microbatch `number` of a tree of arrays [microbatches, ...]."""
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, number, keepdims=False), split)


def with_targets(
    objectives: Mapping[str, Objective],
    seed: ArrayLike,
    microbatches: Microbatches,
    state: State,
    batch: Batch,
) -> tuple[dict[str, object], dict[str, jax.Array]]:
    """Returns the inputs with targets of each objective, and random keys for its dropout.

    The gradient of a step is the gradient of `loss` at these inputs. No gradient passes through the
    inputs.

    Returns:
      Two dicts, by the name of the objective: inputs, and a random key for each row, [rows].
    """
    inputs: dict[str, object] = {}
    dropout_rngs: dict[str, jax.Array] = {}
    for name, rows in batch.items():
        objective, step = objectives[name], state.progress.step
        slots = microbatches.slots(len(rows["languages"]))
        corrupted = objective.corrupt(rows, row_rngs(seed, f"{name}/corruption", step, slots))
        own_state = state.objectives.get(name, {})
        inputs[name] = objective.targets(state.params, own_state, corrupted, microbatches.map)
        dropout_rngs[name] = row_rngs(seed, f"{name}/dropout", step, slots)
    return inputs, dropout_rngs


def loss_scales(
    normalisation: str, weights: Mapping[str, float], counts: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """Returns the factor of each summed loss in the total loss of a step, float32 [] each.

    Let S_o, n_o and w_o be the sum, the count and the weight of loss o:

    - normalisation=per_objective: the total loss is sum_o w_o S_o / n_o (ELECTRA, XLM-E with
      lambda = 50).
    - normalisation=global: the total loss is sum_o w_o S_o / sum_o n_o (XLM-Align's released code).
      The counts are summed over losses whose weight is not 0.

    A loss without predictions in a step contributes 0, not NaN.
    """
    total = sum((counts[name] for name in sorted(counts) if weights[name]), jnp.zeros(()))
    denominators = counts if normalisation == "per_objective" else dict.fromkeys(counts, total)
    return {name: weights[name] / jnp.maximum(denominators[name], 1) for name in counts}


def _advance(
    progress: Progress,
    finite: jax.Array,
    loss: jax.Array,
    norm: jax.Array,
    losses: dict[str, LossSums],
) -> Progress:
    """Returns the progress after a step. A step that is not finite adds nothing to the sums.

    Args:
      progress: before the step.
      finite: whether loss and gradient are finite, bool [].
      loss, norm: total loss, and global norm of the gradients, float32 [].
      losses: the sums of each loss, by name.
    """

    def plus(total: jax.Array, more: jax.Array) -> jax.Array:
        return total + jnp.where(finite, more, 0).astype(total.dtype)

    totals = dict(progress.losses)
    totals |= {name: jax.tree.map(plus, totals[name], sums) for name, sums in losses.items()}
    skipped = 1 - finite.astype(jnp.int32)
    return dataclasses.replace(
        progress,
        step=progress.step + 1,
        skipped=progress.skipped + skipped,
        skipped_in_a_row=(progress.skipped_in_a_row + 1) * skipped,
        steps_since_log=plus(progress.steps_since_log, jnp.ones((), jnp.int32)),
        loss=plus(progress.loss, loss),
        gradient_norm=plus(progress.gradient_norm, norm),
        losses=totals,
    )


def row_rngs(seed: ArrayLike, purpose: str, step: jax.Array | int, slots: jax.Array) -> jax.Array:
    """Returns a threefry key for each row of a global batch, [rows].

    Args:
      seed: an integer from 0 to 2^32 - 1.
      purpose: a name for the use of the keys, e.g. `mmlm/corruption`.
      step: zero-based, int32 [].
      slots: the index of each row in the global batch, int32 [rows].
    """
    rng = jax.random.key(seed, impl="threefry2x32")  # rbg keys depend on the batch size under vmap
    rng = jax.random.fold_in(rng, jnp.uint32(name_hash(purpose) & 0xFFFFFFFF))
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(rng, step), slots)
