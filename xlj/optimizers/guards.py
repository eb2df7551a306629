"""Transformations that do not change their state in steps with non-finite losses or gradients."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from xlj.contracts.arrays import Tree
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
