"""Transformations around an optimizer: steps with non-finite losses or gradients change no state,
gradients are clipped by their global norm, and parameters have a moving average.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from xlj.contracts.arrays import Tree
from xlj.models.lowering import cpu_layout_barrier
from xlj.sharding.trees import Params


def either(condition: jax.Array, new: Tree, old: Tree) -> Tree:
    """Returns `new` if the condition, a bool [], is True, else `old`; both are trees of arrays."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


class Guarded(optax.GradientTransformationExtraArgs):
    """A transformation that guards its state: `update(updates, state, params, *, finite)`.

    `update` returns the old state if `finite`, a bool [], is False. An optimizer should guard its
    state before it computes updates from the state; then XLA writes the state in place.
    """


class Damped(NamedTuple):
    """A direction (`optimizers.make`), and a factor of the learning rate for each tensor.

    The `update` of an optimizer's transformation may return a `Damped` instead of a direction. The
    factors apply to weight decay too.
    """

    direction: Params
    factors: Params
    """Factors of the learning rate: for each tensor, an array that broadcasts to the tensor."""


def guard(plain: optax.GradientTransformation) -> Guarded:
    """Makes an optax transformation keep its state in steps that are not finite.

    The result needs memory for the old and the new state.
    """
    inner = optax.with_extra_args_support(plain)

    def update(
        updates: Params, state: optax.OptState, params: Params, *, finite: jax.Array, **more: object
    ) -> tuple[Params, optax.OptState]:
        updates, new = inner.update(updates, state, params, **more)
        return updates, either(finite, new, state)

    return Guarded(plain.init, update)


def clip(gradients: Params, limit: float) -> tuple[Params, jax.Array]:
    """Scales gradients so that their global norm is at most `limit`.

    Args:
      limit: 0 means no limit.

    Returns:
      The gradients, and their global norm before scaling, float32 []. The global norm is the length
      of all gradients as one vector.
    """
    # Both the norm and AdamW square the gradients. Without the barrier, XLA for CPUs would share
    # the squares and write all of them to memory.
    norm = optax.tree.norm(cpu_layout_barrier(gradients))
    factor = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-12)) if limit else 1.0
    return jax.tree.map(lambda gradient: gradient * factor, gradients), norm


def unbiased_decay(beta: float, time: jax.Array) -> jax.Array | float:
    """Returns the decay of a moving average at update t: beta (1 - beta^(t-1)) / (1 - beta^t).

    With this decay, the average does not depend on its initial value. The weight of each of the t
    values so far is proportional to beta to the power of the value's age in updates.

    Args:
      beta: the decay in the limit of many updates.
      time: t, the number of updates including this one, at least 1, float32 [].

    Returns:
      float32 []; 0.0 if beta is 0.
    """
    if not beta:
        return 0.0
    # With 1 - beta^t = -expm1(t log(beta)), differences of numbers near 1 keep their precision.
    rate = math.log(beta)
    return beta * jnp.expm1((time - 1) * rate) / jnp.expm1(time * rate)


def update_average(
    average: Params, params: Params, beta: float, steps: jax.Array, finite: jax.Array
) -> Params:
    """Returns the moving average of the parameters after a step.

    Args:
      average: the average before the step.
      params: the parameters after the step.
      beta: the decay, `optimizer.average`; 0 means no average.
      steps: int32 [], number of finite steps before this one.
      finite: bool []; if the step is not finite, the average does not change.
    """
    if not beta:
        return average
    share = 1 - unbiased_decay(beta, (steps + 1).astype(jnp.float32))
    # This form keeps the average of a parameter that never changes equal to the parameter, exactly.
    new = jax.tree.map(lambda old, now: old + share * (now - old), average, params)
    return either(finite, new, average)
