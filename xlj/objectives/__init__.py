"""Pretraining objectives: each corrupts rows without parameters, then tallies its losses.

`build` is the one place where a config's objectives become functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from xlj.config import ROW_KINDS, Config
from xlj.objectives import mlm
from xlj.objectives.losses import Tally


@dataclasses.dataclass(frozen=True)
class Objective:
    """One objective of a run, as pure functions of rows [rows, length] and a key of each row."""

    weight: float
    kind: str
    """The kind of rows it reads: text or pairs."""
    corrupt: Callable[[jax.Array, jax.Array], Any]
    """(rows, keys) -> what the loss reads; a pytree of arrays [rows, ...]. Uses no parameters."""
    count: Callable[[Any], jax.Array]
    """What `corrupt` made -> how much each row will predict, float32 [rows]."""
    loss: Callable[[Any, Any, jax.Array | None], Tally]
    """(params, what `corrupt` made, dropout keys or None) -> losses by row."""


def build(config: Config, vocabulary_size: int) -> dict[str, Objective]:
    """The objectives that are on, by name."""
    objectives = {}
    for name, options in config.objectives.active().items():
        objectives[name] = Objective(
            weight=options.weight,
            kind=ROW_KINDS[name],
            corrupt=partial(mlm.corrupt, options=options, vocabulary_size=vocabulary_size),
            count=lambda masked: masked.weights.sum(1),
            loss=partial(mlm.loss, model=config.model),
        )
    return objectives
