"""Learning rate and weight decay by step.

They are arguments of the compiled step, so that it does not depend on them.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from xlj.config import Config, Phase


class Rates(NamedTuple):
    """Arguments of an update, each float32 []."""

    learning_rate: ArrayLike
    weight_decay: ArrayLike
    """A step decays a parameter by this times the parameter's learning rate."""


def rates(config: Config, step: int) -> Rates:
    """Returns the rates of a step (0-based)."""
    options = config.phase_at(step).config.optimizer
    peak = options.learning_rate if options.decoupling == "fully" else 1.0
    decay = np.float32(options.weight_decay / peak)
    return Rates(learning_rate(config, step), decay)


def learning_rate(config: Config, step: np.ndarray | int) -> np.ndarray:
    """Returns the learning rate of a step (0-based), float32.

    A schedule starts with the run, or with a phase that sets one. It ends with the run, or when the
    next schedule starts. All schedules have a linear warm-up to the peak. Then:

    - linear, cosine, sqrt: the rate falls from the peak to `floor` times the peak.
    - constant: it stays at the peak.
    - wsd: it falls in this way over the last `decay_steps` (warm-up-stable-decay, Hu et al., 2024).

    A step of the batch warm-up counts as its share of a batch, so that rates are linear in tokens,
    as in ModernBERT.
    """
    step = np.asarray(step)
    rate = np.zeros_like(step, np.float32)
    for phase in config.schedule:
        rate = np.where(step >= phase.start, _of_phase(config, phase, step), rate)
    return rate


def _of_phase(config: Config, phase: Phase, step: np.ndarray) -> np.ndarray:
    """Returns the learning rate of steps by the schedule of a phase."""
    options, start, end = phase.config.optimizer, phase.rates_start, phase.rates_end
    is_wsd, warmup = options.schedule == "wsd", options.warmup_steps
    begin = end - options.decay_steps if is_wsd else start + warmup
    form = options.decay if is_wsd else options.schedule
    rise = left = np.ones_like(step, np.float32)
    if warmup:
        rise = _share(config, start, step + 1, start, start + warmup)
    if begin < end and form != "constant":
        left = np.clip(_share(config, step, end, begin, end), 0, 1)
    floor = np.float32(options.floor)
    fall = floor + (1 - floor) * _FALLS[form](left)
    return np.float32(options.learning_rate) * np.clip(np.minimum(rise, fall), 0, 1)


_FALLS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda left: left,
    "cosine": lambda left: (1 - np.cos(np.float32(np.pi) * left)) / 2,
    "sqrt": lambda left: 1 - np.sqrt(1 - left),
    "constant": lambda left: left,
}
"""Functions from the share of a decay's steps left, from 1 to 0, to the share of its height left.
sqrt is 1 - sqrt of the elapsed share (Haegele et al., 2024; ModernBERT, mmBERT)."""


def _share(
    config: Config, begin: np.ndarray | int, end: np.ndarray | int, first: int, last: int
) -> np.ndarray:
    """Returns the batches of steps [begin, end) as a share of the batches of steps [first, last).

    It multiplies by a rounded reciprocal, as XLA does to divide by a constant.
    """
    warmup = config.batch_warmup

    def before(step: np.ndarray | int) -> np.ndarray:
        """Returns the number of full batches before a step."""
        if warmup is None:
            return np.asarray(step)
        return np.vectorize(warmup.before, otypes=[np.int64])(np.maximum(step, 0)) / warmup.parts

    count = np.float32(before(last) - before(first))
    return (before(end) - before(begin)).astype(np.float32) * (np.float32(1) / count)
