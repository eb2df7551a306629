"""Transformations that keep their state in a step whose loss or gradients are not finite."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from xlj.contracts.arrays import Tree
from xlj.models.encoder import Params


def either(condition: jax.Array, new: Tree, old: Tree) -> Tree:
    """One of two trees of arrays, by a bool []."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


class Guarded(optax.GradientTransformationExtraArgs):
    """A transformation that guards its own state: `update(updates, state, params, *, finite)`.

    The state that it returns is the old one where `finite`, a bool [], is False. A guard before
    updates are made of the state lets XLA write each of its arrays in place.
    """


class Damped(NamedTuple):
    """What a transformation may return in the place of a direction, to change the learning rate of
    each tensor: weight decay is scaled too."""

    direction: Params
    factors: Params
    """Of the learning rates: for each tensor an array that its direction is multiplied by."""


def guarded(plain: optax.GradientTransformation) -> Guarded:
    """Any optax transformation, with a guard behind it: old and new of all of its state are alive
    at once."""
    inner = optax.with_extra_args_support(plain)

    def update(
        updates: Params, state: optax.OptState, params: Params, *, finite: jax.Array, **more: object
    ) -> tuple[Params, optax.OptState]:
        updates, new = inner.update(updates, state, params, **more)
        return updates, either(finite, new, state)

    return Guarded(plain.init, update)
