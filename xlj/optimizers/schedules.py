"""What an update takes from the config as numbers: they change from step to step, or from run to
run, and are arguments of the compiled step."""

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from xlj.config import Config


class Rates(NamedTuple):
    """Arguments of an update, each float32 []."""

    learning_rate: ArrayLike
    weight_decay: ArrayLike
    """A step takes this times the learning rate of a parameter."""


def rates(config: Config, step: int) -> Rates:
    """The rates of a step (0-based)."""
    options = config.optimizer
    peak = options.learning_rate if options.decoupling == "fully" else 1.0
    decay = np.float32(options.weight_decay / peak)
    return Rates(learning_rate(config, step), decay)


def learning_rate(config: Config, step: np.ndarray | int) -> np.ndarray:
    """The learning rate of a step (0-based), float32: linear warm-up, then the configured schedule.

    linear: from the peak after the warm-up to 0 at `train.steps`. constant: the peak. wsd: the
    peak, then linear to 0 over the last `decay_steps` (Hu et al., 2024, warm-up-stable-decay).
    """
    options, steps, step = config.optimizer, config.train.steps, np.asarray(step)
    warmup = options.warmup_steps
    begin = {"linear": warmup, "constant": steps, "wsd": steps - options.decay_steps}[
        options.schedule
    ]
    rise = fall = np.ones_like(step, np.float32)
    if warmup:
        rise = _divided(step + 1, warmup)
    if begin < steps:
        fall = _divided(steps - step, steps - begin)
    return np.float32(options.learning_rate) * np.clip(np.minimum(rise, fall), 0, 1)


def _divided(numbers: np.ndarray, count: int) -> np.ndarray:
    """Quotients as XLA divides by a constant: by its rounded reciprocal."""
    return numbers.astype(np.float32) * (np.float32(1) / np.float32(count))
