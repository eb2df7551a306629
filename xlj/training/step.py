"""One optimizer step: corrupt, find targets, count, sum gradients over microbatches, update."""

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
from xlj.objectives.objective import Found, Given, LossSums, Objective, Params, Rows
from xlj.optimizers import multipliers
from xlj.optimizers.averaging import averaged
from xlj.optimizers.clipping import clip
from xlj.optimizers.guards import either
from xlj.optimizers.schedules import Rates
from xlj.sharding import devices, trees
from xlj.sharding.devices import on_mesh
from xlj.sharding.rules import OTHERS, REPLICATED, RULES
from xlj.training.randomness import row_rngs
from xlj.training.state import Progress, State

Batch = Mapping[str, Rows]
"""The rows of each objective."""


class TrainStep(Protocol):
    """A step of training, not jitted."""

    def __call__(
        self,
        state: State,
        batch: Batch,
        seed: ArrayLike,
        rates: Rates,
        filled: ArrayLike | None = None,
        /,
    ) -> State:
        """The next state.

        Args:
          filled: how many microbatches have rows, int32 []; None for all. The rows of all others
            must be padding.
        """


def make_train_step(
    config: Config,
    objectives: Mapping[str, Objective],
    mesh: Mesh,
    begins: Mapping[str, int] | None = None,
) -> TrainStep:
    """The step of a phase, to be jitted. `config` is the phase's; `begins` names the objectives
    that it switches on, and at which step: what they keep starts from the parameters then. Runs
    that differ in `train.seed`, a uint32 here, or in what `rates` are made of, have the same step.

    All that a step predicts is counted before any gradient, so that the sums of microbatches add up
    to the gradient of one large batch. With weights of 0 it only fills what objectives keep.
    """
    weights = {name: loss.weight for o in objectives.values() for name, loss in o.losses.items()}
    whole = Microbatches(config.train.accumulation, whole=config.mesh.gather == "step")
    rules = tuple(rule for o in objectives.values() for rule in o.rules)
    loss_of = partial(_loss_of, objectives, config.optimizer)
    optimizer = optimizers.make(config)

    def train_step(
        state: State, batch: Batch, seed: ArrayLike, rates: Rates, filled: ArrayLike | None = None
    ) -> State:
        microbatches, state = whole.first(filled), _begun(objectives, begins, state)
        inputs, rngs = with_targets(objectives, seed, microbatches, state, batch)
        counts = _counts(objectives, inputs)
        scales = loss_scales(config.objectives.normalisation, weights, counts)
        both = {name: (inputs[name], rngs[name]) for name in inputs}
        shared = state.params, (state.objectives, scales)
        lie = trees.layout(shared, (*RULES, *rules, *OTHERS))
        if any(weights.values()):
            gradient_of = jax.value_and_grad(loss_of, has_aux=True)
            (loss, losses), gradients = microbatches.sum(
                gradient_of, shared, both, lie, (REPLICATED, lie[0])
            )
            gradients, norm = clip(gradients, config.optimizer.clip_norm)
            finite = jnp.isfinite(loss) & jnp.isfinite(norm)
            updates, new_optimizer = optimizer.update(
                gradients, state.optimizer, state.params, finite=finite, rates=rates
            )
            new_params = either(finite, jax.tree.map(jnp.add, state.params, updates), state.params)
        else:
            loss, losses = microbatches.sum(loss_of, shared, both, lie, REPLICATED)
            norm, finite = jnp.zeros(()), jnp.isfinite(loss)
            new_params, new_optimizer = state.params, state.optimizer

        new_objectives = {
            name: objectives[name].update(kept, new_params, inputs[name])
            if name in inputs
            else kept
            for name, kept in state.objectives.items()
        }
        return State(
            params=new_params,
            optimizer=new_optimizer,
            objectives=either(finite, new_objectives, state.objectives),
            progress=_advance(state.progress, finite, loss, norm, losses),
            average=_averaged(config, state, new_params, finite & any(weights.values())),
        )

    return on_mesh(mesh, train_step)


def _counts(
    objectives: Mapping[str, Objective], inputs: Mapping[str, object]
) -> dict[str, jax.Array]:
    """How much each loss predicts in the whole step."""
    counts: dict[str, jax.Array] = {}
    for name, found in inputs.items():
        counts |= jax.tree.map(jnp.sum, objectives[name].count(found))
    return counts


def _averaged(config: Config, state: State, params: Params, changes: jax.Array) -> Params:
    """The average with the parameters after the step; it stays if the step `changes` none, a bool
    []."""
    steps = state.progress.step - state.progress.skipped
    return averaged(state.average, params, config.optimizer.average, steps, changes)


def _begun(
    objectives: Mapping[str, Objective], begins: Mapping[str, int] | None, state: State
) -> State:
    """The state, in which what the objectives that begin at this step keep is new."""
    kept = dict(state.objectives)
    for name, start in (begins or {}).items():
        if name in kept and objectives[name].evolves:
            fresh = objectives[name].init_state(state.params)
            kept[name] = either(state.progress.step == start, fresh, kept[name])
    return dataclasses.replace(state, objectives=kept)


def _loss_of(
    objectives: Mapping[str, Objective],
    options: Optimizer,
    params: Params,
    others: tuple[Mapping[str, object], Mapping[str, jax.Array]],
    part: Mapping[str, tuple[object, jax.Array]],
) -> tuple[jax.Array, dict[str, LossSums]]:
    """The scaled loss of a microbatch, and its sums by name.

    Args:
      others: what objectives keep, and the scale of each loss.
      part: inputs and dropout rngs of each objective.
    """
    params = multipliers.stop_frozen(options, params)
    kept, scales = others
    losses: dict[str, LossSums] = {}
    for name, (found, dropout_rngs) in part.items():
        by_row = objectives[name].loss(params, kept.get(name, {}), found, dropout_rngs)
        losses |= {loss: jax.tree.map(jnp.sum, sums) for loss, sums in by_row.items()}
    total = sum((scales[loss] * losses[loss].sum for loss in losses), jnp.zeros(()))
    return total, losses


class Microbatches:
    """The rows of a step in `parts` equal parts, one after another; every device keeps its rows.

    Args:
      whole: whether each device takes its sums with a whole copy of what they share.
      filled: how many parts have rows, int32 []: the first. None, for all, is another program.
    """

    def __init__(self, parts: int, whole: bool = False, filled: ArrayLike | None = None):
        self._parts, self._whole, self._filled = parts, whole, filled

    def first(self, filled: ArrayLike | None) -> "Microbatches":
        """The same microbatches, of which the first `filled` have rows."""
        return Microbatches(self._parts, self._whole, filled)

    def slots(self, rows: int) -> jax.Array:
        """The place of each row in the global batch, int32 [rows]."""
        return devices.constrained(jnp.arange(rows), "slots")

    def sum(
        self,
        function: Callable[..., Found],
        shared: tuple[object, ...],
        inputs: object,
        lie: object = REPLICATED,
        sums_lie: object = REPLICATED,
    ) -> Found:
        """The sum over microbatches of function(*shared, microbatch), which each copy of the
        parameters takes of its own rows; the copies' are added up once, whatever the number of
        microbatches and objectives. `lie` and `sums_lie`: how what is shared and sums lie."""
        sums = partial(self._sums, function)
        return devices.by_copy(sums, self._whole, (lie, REPLICATED), sums_lie)(
            (shared, self._filled), inputs
        )

    def _sums(
        self,
        function: Callable[..., Found],
        given: tuple[tuple[object, ...], jax.Array | None],
        inputs: object,
    ) -> Found:
        shared, filled = given
        if self._parts == 1:
            return function(*shared, inputs)

        def add(sums: Found, part: object) -> tuple[Found, None]:
            return jax.tree.map(jnp.add, sums, function(*shared, part)), None

        split = jax.tree.map(self._split, inputs)
        shapes = jax.eval_shape(function, *shared, jax.tree.map(lambda x: x[0], split))
        nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        if filled is None or self._are_unrolled:
            return jax.lax.scan(add, nothing, split, unroll=devices.unrolled(self._parts))[0]
        return jax.lax.fori_loop(
            0, filled, lambda number, sums: add(sums, _part(split, number))[0], nothing
        )

    def map(self, function: Callable[[Given], Found], inputs: Given, /) -> Found:
        """The result of a function of rows for all rows. Of the microbatches without rows one is
        computed, and all have its results: these predict nothing."""
        if self._parts == 1:
            return function(inputs)

        # `jax.lax.map` cannot be unrolled.
        def one(_: None, part: Given) -> tuple[None, Found]:
            return None, function(part)

        split = jax.tree.map(self._split, inputs)
        if self._filled is None or self._are_unrolled:
            results = jax.lax.scan(one, None, split, unroll=devices.unrolled(self._parts))[1]
        else:
            results = self._mapped_to_filled(function, split, self._filled)
        return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), results)

    def _mapped_to_filled(
        self, function: Callable[[Given], Found], split: Given, filled: ArrayLike
    ) -> Found:
        """The results of all microbatches, [parts, ...]."""
        shapes = jax.eval_shape(function, jax.tree.map(lambda x: x[0], split))
        nothing = jax.tree.map(
            lambda shape: jnp.zeros((self._parts, *shape.shape), shape.dtype), shapes
        )

        def one(number: jax.Array, results: Found) -> Found:
            found = function(_part(split, number))
            return jax.tree.map(lambda x, new: x.at[number].set(new), results, found)

        last = jnp.minimum(filled, self._parts - 1)  # without rows, unless all have some
        results = jax.lax.fori_loop(0, last + 1, one, nothing)
        places = jnp.minimum(jnp.arange(self._parts), last)
        return jax.tree.map(lambda x: x[places], results)

    @property
    def _are_unrolled(self) -> bool:
        """Whether all are computed, of rows or not: collectives in a loop would wait for ever."""
        return devices.unrolled(self._parts) > 1

    def _split(self, x: jax.Array) -> jax.Array:
        """[rows, ...] -> [parts, rows / parts, ...]."""
        x = x.reshape(x.shape[0] // self._parts, self._parts, *x.shape[1:]).swapaxes(0, 1)
        return devices.constrained(x, "microbatches")


def _part(split: Given, number: jax.Array) -> Given:
    """A microbatch of arrays [parts, ...]."""
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, number, keepdims=False), split)


def with_targets(
    objectives: Mapping[str, Objective],
    seed: ArrayLike,
    microbatches: Microbatches,
    state: State,
    batch: Batch,
) -> tuple[dict[str, object], dict[str, jax.Array]]:
    """Inputs with targets of each objective at a step, by name, and dropout rngs [rows].

    The gradient of a step is that of `loss` at these inputs: none passes through them.
    """
    inputs: dict[str, object] = {}
    dropout_rngs: dict[str, jax.Array] = {}
    for name, rows in batch.items():
        objective, step = objectives[name], state.progress.step
        slots = microbatches.slots(rows.tokens.shape[0])
        corrupted = objective.corrupt(rows, row_rngs(seed, f"{name}/corruption", step, slots))
        kept = state.objectives.get(name, {})
        inputs[name] = objective.targets(state.params, kept, corrupted, microbatches.map)
        dropout_rngs[name] = row_rngs(seed, f"{name}/dropout", step, slots)
    return inputs, dropout_rngs


def loss_scales(
    normalisation: str, weights: Mapping[str, float], counts: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """The factor of each summed loss.

    per_objective: loss = sum_o weight_o * sum_o / count_o (ELECTRA, XLM-E with lambda = 50).
    global: loss = sum_o weight_o * sum_o / sum_o count_o (XLM-Align's released code), over those
    with a weight.
    An objective that predicts nothing in a step contributes 0, not NaN.
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
    """Progress after a step; a skipped step leaves the sums as they were."""

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
