"""Learning rates by step."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from xlj.config import Config


def learning_rate(config: Config) -> Callable[[ArrayLike], jax.Array]:
    """The learning rate of a step (0-based): linear warm-up, then the configured schedule.

    linear: from the peak after the warm-up to 0 at `train.steps`. constant: the peak. wsd: the
    peak, then linear to 0 over the last `decay_steps` (Hu et al., 2024, warm-up-stable-decay).
    """
    options, steps = config.optimizer, config.train.steps
    peak, warmup = options.learning_rate, options.warmup_steps
    begin = {"linear": warmup, "constant": steps, "wsd": steps - options.decay_steps}[
        options.schedule
    ]

    def rate(step: ArrayLike) -> jax.Array:
        rise = (step + 1) / warmup if warmup else 1.0
        fall = (steps - step) / (steps - begin) if begin < steps else 1.0
        return peak * jnp.clip(jnp.minimum(rise, fall), 0.0, 1.0)

    return rate
