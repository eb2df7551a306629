"""Moving average of the parameters during training."""

import math

import jax
import jax.numpy as jnp

from xlj.models.encoder import Params
from xlj.optimizers.guards import either


def unbiased_decay(beta: float, time: jax.Array) -> jax.Array | float:
    """Returns the decay of a moving average at update t: beta (1 - beta^(t-1)) / (1 - beta^t).

    With this decay the average does not depend on its initial value. It weighs each of the t values
    so far by beta to the power of the value's age.

    Args:
      beta: the decay in the limit of many updates.
      time: t, the number of updates including this one, float32 [], from 1.

    Returns:
      float32 [].
    """
    if not beta:
        return 0.0
    rate = math.log(beta)
    return beta * jnp.expm1((time - 1) * rate) / jnp.expm1(time * rate)


def update_average(
    average: Params, params: Params, beta: float, steps: jax.Array, finite: jax.Array
) -> Params:
    """Returns the average after a step.

    Args:
      average: the average before the step.
      params: the parameters after the step.
      beta: `optimizer.average`; 0 means no average.
      steps: int32 [], number of finite steps before this one.
      finite: bool []; if the step is not finite, the average does not change.
    """
    if not beta:
        return average
    share = 1 - unbiased_decay(beta, (steps + 1).astype(jnp.float32))
    # In this form, the average of a parameter that never changes is the parameter, to the bit.
    new = jax.tree.map(lambda old, now: old + share * (now - old), average, params)
    return either(finite, new, average)
