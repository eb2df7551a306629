"""What an update takes from the config as numbers: they change from step to step, or from run to
run, and are arguments of the compiled step."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from xlj.config import Config, Phase


class Rates(NamedTuple):
    """Arguments of an update, each float32 []."""

    learning_rate: ArrayLike
    weight_decay: ArrayLike
    """A step takes this times the learning rate of a parameter."""


def rates(config: Config, step: int) -> Rates:
    """The rates of a step (0-based)."""
    options = config.phase_at(step).config.optimizer
    peak = options.learning_rate if options.decoupling == "fully" else 1.0
    decay = np.float32(options.weight_decay / peak)
    return Rates(learning_rate(config, step), decay)


def learning_rate(config: Config, step: np.ndarray | int) -> np.ndarray:
    """The learning rate of a step (0-based), float32: of a whole run, in each phase by the schedule
    that holds there. A schedule begins with the run, or with a phase that sets one, and ends with
    the run or where the next begins. At its end:

    linear, cosine, sqrt: after a linear warm-up the rate has fallen from the peak to `floor` times
    it. constant: it is the peak. wsd: the same fall over the last `decay_steps` (Hu et al., 2024,
    warm-up-stable-decay). A step of the batch warm-up counts as its share of a batch: then rates
    are linear in tokens, as ModernBERT's are.
    """
    step = np.asarray(step)
    rate = np.zeros_like(step, np.float32)
    for phase in config.schedule:
        rate = np.where(step >= phase.start, _of_phase(config, phase, step), rate)
    return rate


def _of_phase(config: Config, phase: Phase, step: np.ndarray) -> np.ndarray:
    """The learning rate of steps by the schedule that holds in a phase."""
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
"""From the share of a decay's steps that is left, from 1 to 0, to that of its height. sqrt is 1 -
sqrt of the elapsed share (Haegele et al., 2024; ModernBERT, mmBERT)."""


def _share(
    config: Config, begin: np.ndarray | int, end: np.ndarray | int, first: int, last: int
) -> np.ndarray:
    """What the steps from `begin` to `end` read, as a share of what those from `first` to `last`
    do, which are divided as XLA divides by a constant: by their rounded reciprocal."""
    warmup = config.batch_warmup

    def before(step: np.ndarray | int) -> np.ndarray:
        """The whole batches before a step."""
        if warmup is None:
            return np.asarray(step)
        return np.vectorize(warmup.before, otypes=[np.int64])(np.maximum(step, 0)) / warmup.parts

    count = np.float32(before(last) - before(first))
    return (before(end) - before(begin)).astype(np.float32) * (np.float32(1) / count)
