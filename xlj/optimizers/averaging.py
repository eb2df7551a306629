"""Moving average of the parameters during training."""

import math

import jax
import jax.numpy as jnp

from xlj.optimizers.guards import either
from xlj.sharding.trees import Params


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
