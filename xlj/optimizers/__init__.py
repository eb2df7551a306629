"""Optimizers: what a step adds to the parameters, made of gradients by optax transformations.

`make` is the one place where a config's optimizer becomes one. A file of this folder is an
optimizer, named in the table of `xlj/config/optimizers.py`, or what all of them have.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import KeyPath

from xlj.config import Config, Optimizer, registered_optimizers
from xlj.config.user_code import function_of
from xlj.contracts.arrays import Leaf, PyTree
from xlj.models.encoder import Params
from xlj.optimizers import multipliers
from xlj.optimizers.guards import Damped, Guarded, guarded
from xlj.optimizers.schedules import Rates
from xlj.sharding.trees import name_of, named_leaves

OptState: TypeAlias = optax.OptState
"""The state of an optimizer: (the state of its direction, an empty one)."""


def make(config: Config) -> optax.GradientTransformationExtraArgs:
    """The optimizer of a config, made of a direction, weight decay, multipliers and learning rate.

    The function that the table names gives the direction: a transformation whose updates are to be
    *subtracted*, times the learning rate, such as `optax.scale_by_lion`. All else is the same for
    every optimizer: decoupled weight decay, factors by parameter name, the learning rate. A
    direction that is `Damped` has factors of the learning rate of its own.

    Returns:
      A transformation: `update(gradients, state, params, finite=, rates=)` gives updates to be
      added to the parameters, and the next state, which is the old one if not `finite`, a bool [];
      then the updates may be anything. `rates` are those of the step (`schedules.rates`).
    """
    options = config.optimizer
    entry = registered_optimizers()[options.name]
    direction = function_of(entry.implementation, "optimizer.name")(options)
    if not isinstance(direction, Guarded):
        direction = guarded(direction)
    return optax.chain(direction, _descent(options))


def _descent(options: Optimizer) -> optax.GradientTransformationExtraArgs:
    """From a direction to what is added to the parameters.

    Its empty state is that of optax's weight decay with a mask, which checkpoints have had there
    since before there were multipliers.
    """

    def update(
        direction: Params | Damped, state: OptState, params: Params, *, rates: Rates, **_: object
    ) -> tuple[Params, OptState]:
        factors = None
        if isinstance(direction, Damped):
            direction, factors = direction

        def decayed(update: jax.Array, param: jax.Array, factor: float) -> jax.Array:
            return update + rates.weight_decay * factor * param if factor else update

        updates = jax.tree.map(
            decayed, direction, params, multipliers.decay_factors(options, params)
        )
        if factors is not None:
            updates = jax.tree.map(jnp.multiply, updates, factors)
        updates = multipliers.scaled_by_rates(options, updates)
        # Negated last: a negative rate would let XLA multiply in another order.
        return jax.tree.map(lambda update: -(rates.learning_rate * update), updates), state

    nothing = optax.MaskedState(optax.EmptyState())
    return optax.GradientTransformationExtraArgs(lambda _: nothing, update)


def state_shardings(state: OptState, params: PyTree, of_params: PyTree, others: object) -> OptState:
    """Where a state's arrays lie: a moment where its parameter does. A moment has the shape of its
    parameter, and a name that ends with the parameter's.

    Args:
      state: shapes of its arrays.
      params: shapes of the parameters.
      of_params: the sharding of each parameter.
      others: the sharding of all else, such as counters.
    """
    shapes = {name: leaf.shape for name, leaf in named_leaves(params).items()}
    places = named_leaves(of_params)

    def place(path: KeyPath, leaf: Leaf) -> object:
        parts = name_of(path).split("/")
        ends = ("/".join(parts[start:]) for start in range(len(parts)))  # the longest first
        name = next((end for end in ends if shapes.get(end) == leaf.shape), "")
        return places.get(name, others)

    return jax.tree_util.tree_map_with_path(place, state)
