"""Transformations that do not change their state in steps with non-finite losses or gradients."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from xlj.contracts.arrays import Tree
from xlj.models.encoder import Params


def either(condition: jax.Array, new: Tree, old: Tree) -> Tree:
    """Returns `new` if the condition, a bool [], is True, else `old`; both are trees of arrays."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


class Guarded(optax.GradientTransformationExtraArgs):
    """A transformation that guards its own state: `update(updates, state, params, *, finite)`.

    It returns the old state if `finite`, a bool [], is False. If the state is guarded before
    updates are computed from it, XLA writes each of its arrays in place.
    """


class Damped(NamedTuple):
    """A direction with a factor of the learning rate for each tensor.

    A transformation may return it instead of a direction. Factors apply to weight decay too.
    """

    direction: Params
    factors: Params
    """Factors of the learning rate: for each tensor, an array that broadcasts to it."""


def guard(plain: optax.GradientTransformation) -> Guarded:
    """Wraps an optax transformation with a guard, which needs the old and new state in memory."""
    inner = optax.with_extra_args_support(plain)

    def update(
        updates: Params, state: optax.OptState, params: Params, *, finite: jax.Array, **more: object
    ) -> tuple[Params, optax.OptState]:
        updates, new = inner.update(updates, state, params, **more)
        return updates, either(finite, new, state)

    return Guarded(plain.init, update)
