"""Optimizers: optax transformations from gradients to updates of the parameters.

`make` builds the optimizer of a config. A module of this package is either an optimizer, which
`xlj/config/optimizers.py` lists, or code that all optimizers share.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import KeyPath
from jax.typing import ArrayLike

from xlj.config import Config, Optimizer, registered_optimizers
from xlj.config.user_code import function_of
from xlj.contracts.arrays import Leaf, PyTree
from xlj.optimizers import multipliers
from xlj.optimizers.wrappers import Damped, Guarded, guard
from xlj.sharding.trees import Params, name_of, named_leaves

OptState: TypeAlias = optax.OptState
"""The state of an optimizer: (the state of the direction's transformation, an empty state). `make`
explains directions."""


class Rates(NamedTuple):
    """Learning rate and weight decay of a step, each float32 [].

    They are arguments of the compiled step. So runs with other schedules use the same program.
    """

    learning_rate: ArrayLike
    weight_decay: ArrayLike
    """A step multiplies a parameter by 1 - (weight_decay * learning rate of the parameter)."""


def make(config: Config) -> optax.GradientTransformationExtraArgs:
    """Builds the optimizer of a config.

    `xlj/config/optimizers.py` names a function that returns a transformation from gradients to a
    direction, such as `optax.scale_by_lion`. A direction, times the learning rate, is *subtracted*
    from the parameters. The rest is the same for all optimizers: decoupled weight decay, factors by
    parameter name, and the learning rate. A transformation may also return a `Damped`: a direction
    with further factors of the learning rate.

    Returns:
      A transformation. Its `update(gradients, state, params, finite=, rates=)` returns (updates to
      add to the parameters, next state). `finite` is a bool []: whether loss and gradients are
      finite. If it is False, the next state equals `state`, and the updates are undefined. `rates`
      are the learning rate and weight decay of the step (`Rates`).
    """
    options = config.optimizer
    entry = registered_optimizers()[options.name]
    direction = function_of(entry.implementation, "optimizer.name")(options)
    if not isinstance(direction, Guarded):
        direction = guard(direction)
    return optax.chain(direction, _descent(options))


def _descent(options: Optimizer) -> optax.GradientTransformationExtraArgs:
    """Returns the transformation from a direction to the updates of the parameters.

    The transformation has no state.
    """

    def update(
        direction: Params | Damped, state: OptState, params: Params, *, rates: Rates, **_: object
    ) -> tuple[Params, OptState]:
        factors = None
        if isinstance(direction, Damped):
            direction, factors = direction

        def add_decay(update: jax.Array, param: jax.Array, factor: float) -> jax.Array:
            return update + rates.weight_decay * factor * param if factor else update

        updates = jax.tree.map(
            add_decay, direction, params, multipliers.decay_factors(options, params)
        )
        if factors is not None:
            updates = jax.tree.map(jnp.multiply, updates, factors)
        updates = multipliers.scale_by_rates(options, updates)
        # The product is negated last. With a negative rate, XLA could multiply in another order.
        return jax.tree.map(lambda update: -(rates.learning_rate * update), updates), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def state_shardings(state: OptState, params: PyTree, of_params: PyTree, others: object) -> OptState:
    """Returns the sharding of each array of an optimizer's state.

    A moment has the sharding of its parameter. An array is a moment of a parameter if it has the
    parameter's shape, and its name ends with the parameter's name.

    Args:
      state: the shapes of the state's arrays.
      params: the shapes of the parameters.
      of_params: the sharding of each parameter.
      others: the sharding of all other arrays, such as counters.
    """
    shapes = {name: leaf.shape for name, leaf in named_leaves(params).items()}
    shardings = named_leaves(of_params)

    def place(path: KeyPath, leaf: Leaf) -> object:
        keys = name_of(path).split("/")
        ends = ("/".join(keys[start:]) for start in range(len(keys)))  # longest name first
        name = next((end for end in ends if shapes.get(end) == leaf.shape), "")
        return shardings.get(name, others)

    return jax.tree_util.tree_map_with_path(place, state)
