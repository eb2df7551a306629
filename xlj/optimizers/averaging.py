"""A moving average of the parameters, kept beside them while they are trained."""

import math

import jax
import jax.numpy as jnp

from xlj.models.encoder import Params
from xlj.optimizers.guards import either


def unbiased(beta: float, time: jax.Array) -> jax.Array | float:
    """The decay of a moving average at an update, float32 []: beta (1 - beta^(t-1)) / (1 - beta^t).
    With it the average holds nothing of its first value, and weighs each of the t values so far as
    beta to the power of its age.

    Args:
      beta: the decay long after the first update.
      time: t, the number of updates with this one, float32 [], from 1.
    """
    if not beta:
        return 0.0
    rate = math.log(beta)
    return beta * jnp.expm1((time - 1) * rate) / jnp.expm1(time * rate)


def averaged(
    average: Params, params: Params, beta: float, steps: jax.Array, finite: jax.Array
) -> Params:
    """The average after a step.

    Args:
      average: before the step.
      params: after it.
      beta: `optimizer.average`; 0 means that there is no average.
      steps: int32 [], finite steps before this one.
      finite: bool []; the average stays if the step is not.
    """
    if not beta:
        return average
    share = 1 - unbiased(beta, (steps + 1).astype(jnp.float32))
    # In this form what does not change has itself as its average, to the bit.
    new = jax.tree.map(lambda old, now: old + share * (now - old), average, params)
    return either(finite, new, average)
