"""One optimizer step: corrupt, count, sum gradients over microbatches, normalise once, update."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xlj.config import Config
from xlj.objectives import Objective
from xlj.objectives.losses import Tally
from xlj.training import optimizer
from xlj.training.partitioning import ROWS
from xlj.training.randomness import row_keys
from xlj.training.state import Progress, State, zero_tally

Batch = Mapping[str, jax.Array]
"""Rows of token ids [rows, length] of each objective."""


def make_train_step(
    config: Config, objectives: Mapping[str, Objective], mesh: Mesh
) -> Callable[[State, Batch], State]:
    """The step of a phase, to be jitted. `config` is the phase's.

    The counts of everything that the whole step predicts are known before any gradient, so that the
    sums of microbatches are scaled by them and add up to the gradient of one large batch.
    """
    transform = optimizer.transform(config.optimizer)
    rate = optimizer.learning_rate(config)
    parts = config.train.accumulation

    def split(x: jax.Array) -> jax.Array:
        """[rows, ...] -> [parts, rows / parts, ...]; every device keeps its rows."""
        x = x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(None, *ROWS)))

    def train_step(state: State, batch: Batch) -> State:
        step = state.progress.step
        inputs = corrupt(objectives, config.train.seed, mesh, step, batch)
        counts = {name: objectives[name].count(made).sum() for name, (made, _) in inputs.items()}
        weights = {name: objectives[name].weight for name in batch}
        scales = loss_scales(config.objectives.normalisation, weights, counts)

        def loss_of(params: Any, part: Any) -> tuple[jax.Array, dict[str, Tally]]:
            tallies = {}
            total = jnp.zeros(())
            for name, (corrupted, keys) in part.items():
                by_row = objectives[name].loss(params, corrupted, keys)
                tallies[name] = jax.tree.map(jnp.sum, by_row)
                total += scales[name] * tallies[name].sum
            return total, tallies

        gradient_of = jax.value_and_grad(loss_of, has_aux=True)
        if parts == 1:
            (loss, tallies), gradients = gradient_of(state.params, inputs)
        else:

            def add(sums: Any, part: Any) -> tuple[Any, None]:
                return jax.tree.map(jnp.add, sums, gradient_of(state.params, part)), None

            nothing = (
                (jnp.zeros(()), {name: zero_tally() for name in batch}),
                jax.tree.map(jnp.zeros_like, state.params),
            )
            ((loss, tallies), gradients), _ = jax.lax.scan(
                add, nothing, jax.tree.map(split, inputs)
            )

        norm = optax.tree.norm(gradients)
        updates, new_optimizer = transform.update(
            optimizer.clip(gradients, norm, config.optimizer.clip_norm),
            state.optimizer,
            state.params,
        )
        new_params = jax.tree.map(lambda p, u: p - rate(step) * u, state.params, updates)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)

        def if_finite(new: Any, old: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)

        return State(
            params=if_finite(new_params, state.params),
            optimizer=if_finite(new_optimizer, state.optimizer),
            progress=_advance(state.progress, finite, loss, norm, tallies),
        )

    return train_step


def corrupt(
    objectives: Mapping[str, Objective],
    seed: int,
    mesh: Mesh,
    step: jax.Array | int,
    batch: Batch,
) -> dict[str, tuple[Any, jax.Array]]:
    """What each objective reads at a step: (corrupted rows, dropout keys [rows])."""
    inputs = {}
    for name, rows in batch.items():
        slots = jnp.arange(rows.shape[0])
        slots = jax.lax.with_sharding_constraint(slots, NamedSharding(mesh, ROWS))
        keys = row_keys(seed, f"{name}/corruption", step, slots)
        dropout_keys = row_keys(seed, f"{name}/dropout", step, slots)
        inputs[name] = (objectives[name].corrupt(rows, keys), dropout_keys)
    return inputs


def loss_scales(
    normalisation: str, weights: Mapping[str, float], counts: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """What each objective's summed loss is multiplied by.

    per_objective: loss = sum_o weight_o * sum_o / count_o (ELECTRA, XLM-E with lambda = 50).
    global: loss = sum_o weight_o * sum_o / sum_o count_o (XLM-Align's released code).
    An objective that predicts nothing in a step contributes 0, not NaN.
    """
    total = sum(counts.values(), jnp.zeros(()))
    denominators = counts if normalisation == "per_objective" else dict.fromkeys(counts, total)
    return {name: weights[name] / jnp.maximum(denominators[name], 1) for name in counts}


def _advance(
    progress: Progress,
    finite: jax.Array,
    loss: jax.Array,
    norm: jax.Array,
    tallies: dict[str, Tally],
) -> Progress:
    """Progress after a step; a skipped step leaves the sums as they were."""

    def plus(total: jax.Array, more: jax.Array) -> jax.Array:
        return total + jnp.where(finite, more, 0).astype(total.dtype)

    sums = dict(progress.tallies)
    sums |= {name: jax.tree.map(plus, sums[name], tally) for name, tally in tallies.items()}
    skipped = 1 - finite.astype(jnp.int32)
    return dataclasses.replace(
        progress,
        step=progress.step + 1,
        skipped=progress.skipped + skipped,
        skipped_in_a_row=(progress.skipped_in_a_row + 1) * skipped,
        steps_since_log=plus(progress.steps_since_log, jnp.ones((), jnp.int32)),
        loss=plus(progress.loss, loss),
        gradient_norm=plus(progress.gradient_norm, norm),
        tallies=sums,
    )
