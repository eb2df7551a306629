"""AdamW (Loshchilov and Hutter, 2019): Adam's direction, with each moment written in place."""

import jax
import jax.numpy as jnp
import optax

from xlj.config import Optimizer
from xlj.optimizers.wrappers import Guarded, either
from xlj.sharding.trees import Params


def direction(options: Optimizer) -> Guarded:
    """Returns a transformation with the updates and the state of `optax.scale_by_adam`.

    The moments are guarded before the direction is computed from them, so XLA writes each moment in
    place. The direction is always finite. With finite gradients, no divisor is 0, since betas are
    below 1 and epsilon is above 0. In steps that are not finite, the moments keep their old values.
    """

    def update(
        gradients: Params, state: optax.OptState, params: Params, *, finite: jax.Array, **_: object
    ) -> tuple[Params, optax.OptState]:
        def moment(old: Params, decay: float, order: int) -> Params:
            return either(finite, optax.tree.update_moment(gradients, old, decay, order), old)

        count = state.count + finite.astype(state.count.dtype)
        mu, nu = moment(state.mu, options.b1, 1), moment(state.nu, options.b2, 2)
        first, second = (1 - beta ** jnp.maximum(count, 1) for beta in (options.b1, options.b2))
        updates = jax.tree.map(
            lambda mean, square: mean / first / (jnp.sqrt(square / second) + options.epsilon),
            mu,
            nu,
        )
        return updates, state._replace(count=count, mu=mu, nu=nu)

    return Guarded(optax.scale_by_adam().init, update)
