"""Learning rate and weight decay by step.

They are arguments of the compiled step. So runs with other schedules use the same program.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from xlj.config import Config, Phase


class Rates(NamedTuple):
    """Learning rate and weight decay of a step, each float32 []."""

    learning_rate: ArrayLike
    weight_decay: ArrayLike
    """A step multiplies a parameter by 1 - (weight_decay * learning rate of the parameter)."""


def rates(config: Config, step: int) -> Rates:
    """Returns the rates of a step.

    With `optimizer.decoupling=fully`, the function divides the configured weight decay by the peak
    of the learning rate. So a step at the peak multiplies a parameter by
    1 - `optimizer.weight_decay`, whatever the peak is.

    Args:
      step: zero-based.
    """
    options = config.phase_at(step).config.optimizer
    peak = options.learning_rate if options.decoupling == "fully" else 1.0
    decay = np.float32(options.weight_decay / peak)
    return Rates(learning_rate(config, step), decay)


def learning_rate(config: Config, step: np.ndarray | int) -> np.ndarray:
    """Returns the learning rate of steps.

    A schedule starts with the run, or with a phase that sets a schedule. It ends with the run, or
    when the next schedule starts. All schedules have a linear warm-up to the peak. After the
    warm-up:

    - `linear`, `cosine`, `sqrt`: the rate falls from the peak to `floor` times the peak.
    - `constant`: the rate stays at the peak.
    - `wsd` (warm-up-stable-decay, Hu et al., 2024): the rate stays at the peak, and falls over the
      last `decay_steps` steps in the form that `optimizer.decay` names.

    During the batch warm-up, a step counts as the fraction of a full batch that it reads. So rates
    are linear in tokens, as in ModernBERT.

    Args:
      step: zero-based numbers of steps, of any shape.

    Returns:
      float32, of the shape of `step`.
    """
    step = np.asarray(step)
    rate = np.zeros_like(step, np.float32)
    for phase in config.schedule:
        rate = np.where(step >= phase.start, _of_phase(config, phase, step), rate)
    return rate


def _of_phase(config: Config, phase: Phase, step: np.ndarray) -> np.ndarray:
    """Returns the learning rate of steps by the schedule of a phase, float32."""
    options, start, end = phase.config.optimizer, phase.rates_start, phase.rates_end
    is_wsd, warmup = options.schedule == "wsd", options.warmup_steps
    begin = end - options.decay_steps if is_wsd else start + warmup
    form = options.decay if is_wsd else options.schedule
    rise = remaining = np.ones_like(step, np.float32)
    if warmup:
        rise = _share(config, start, step + 1, start, start + warmup)
    if begin < end and form != "constant":
        remaining = np.clip(_share(config, step, end, begin, end), 0, 1)
    floor = np.float32(options.floor)
    fall = floor + (1 - floor) * _FALLS[form](remaining)
    return np.float32(options.learning_rate) * np.clip(np.minimum(rise, fall), 0, 1)


_FALLS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda left: left,
    "cosine": lambda left: (1 - np.cos(np.float32(np.pi) * left)) / 2,
    "sqrt": lambda left: 1 - np.sqrt(1 - left),
    "constant": lambda left: left,
}
"""Forms of a decay. The argument is the fraction of the decay's steps that remain, from 1 to 0. The
result is the fraction of the difference between peak and floor that remains. `sqrt` is 1 - sqrt of
the elapsed fraction (Haegele et al., 2024; ModernBERT, mmBERT)."""


def _share(
    config: Config, begin: np.ndarray | int, end: np.ndarray | int, first: int, last: int
) -> np.ndarray:
    """Returns the batches of steps [begin, end) as a share of the batches of steps [first, last).

    The result is a product with the rounded reciprocal, as XLA divides by a constant.
    """
    warmup = config.batch_warmup

    def before(step: np.ndarray | int) -> np.ndarray:
        """Returns how many full batches the steps before `step` read."""
        if warmup is None:
            return np.asarray(step)
        return np.vectorize(warmup.before, otypes=[np.int64])(np.maximum(step, 0)) / warmup.parts

    count = np.float32(before(last) - before(first))
    return (before(end) - before(begin)).astype(np.float32) * (np.float32(1) / count)
