"""StableAdamW (Wortsman et al., 2023): AdamW with a lower learning rate if gradients grow suddenly.

ModernBERT and mmBERT use it.
"""

import jax
import jax.numpy as jnp
import optax

from xlj.config import Optimizer
from xlj.models import pattern
from xlj.optimizers.wrappers import Damped, Guarded, either, unbiased_decay
from xlj.sharding.trees import Params, name_of


def direction(options: Optimizer) -> Guarded:
    """Returns the direction of StableAdamW, with factors of the learning rate.

    Let g be the gradients of update t, which counts from 1:

    - The averages m of g and v of g^2 have the decay beta (1 - beta^(t-1)) / (1 - beta^t), which
      makes them unbiased.
    - The direction is m / (sqrt(v) + epsilon).
    - The factor of a tensor is 1 / max(1, rms), with rms = sqrt(mean(g^2 / max(v, epsilon^2))). The
      mean is over the tensor.

    As in other libraries, each layer of stacked parameters is a tensor. In xlj, the kernels of
    queries, keys and values are three tensors.
    """

    def update(
        gradients: Params, state: optax.OptState, params: Params, *, finite: jax.Array, **_: object
    ) -> tuple[Damped, optax.OptState]:
        count = state.count + finite.astype(state.count.dtype)
        time = jnp.maximum(count, 1).astype(jnp.float32)

        def moment(old: Params, beta: float, order: int) -> Params:
            new = optax.tree.update_moment(gradients, old, unbiased_decay(beta, time), order)
            return either(finite, new, old)

        mu, nu = moment(state.mu, options.b1, 1), moment(state.nu, options.b2, 2)
        updates = jax.tree.map(
            lambda mean, square: mean / (jnp.sqrt(square) + options.epsilon), mu, nu
        )
        factors = jax.tree_util.tree_map_with_path(
            lambda path, gradient, square: _factor(name_of(path), gradient, square, options),
            gradients,
            nu,
        )
        return Damped(updates, factors), state._replace(count=count, mu=mu, nu=nu)

    return Guarded(optax.scale_by_adam().init, update)


def _factor(name: str, gradient: jax.Array, square: jax.Array, options: Optimizer) -> jax.Array:
    """Computes the factor 1 / max(1, rms) of a parameter's learning rate.

    Args:
      name: of the parameter.
      gradient: of the parameter, float32.
      square: the average of squared gradients, of the same shape.

    Returns:
      float32 with axes of size 1: [1, ...], or [layers, 1, ...] for stacked layers.
    """
    ratio = jnp.square(gradient) / jnp.maximum(square, options.epsilon**2)
    axes = tuple(range(pattern.is_stacked(name), ratio.ndim))
    return 1 / jnp.maximum(1.0, jnp.sqrt(jnp.mean(ratio, axes, keepdims=True)))
