"""The contract of an objective: pure functions of rows, parameters, and a state of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax

from xlj.objectives.losses import LossSums
from xlj.objectives.rows import Rows

Params = dict[str, Any]
EachPart = Callable[[Callable[[Any], Any], Any], Any]
"""(function, inputs [rows, ...]) -> its result for all rows, computed a microbatch at a time."""


def _unlabelled(params: Params, state: Any, inputs: Any, each_part: EachPart) -> Any:
    return inputs


def _stateless(params: Params) -> Any:
    return {}


def _unchanged(state: Any, params: Params, inputs: Any) -> Any:
    return state


@dataclasses.dataclass(frozen=True)
class Objective:
    """One objective of a run.

    In a step, `corrupt` and `label` see all rows of the batch and pass no gradient, so that counts
    are known before the gradient; then `loss` sees one microbatch after another, and each row's
    losses depend on that row's inputs only; at the end, `update` makes the next state.
    """

    kind: str
    """The kind of rows it reads, one of `config.KINDS`."""
    weights: Mapping[str, float]
    """The weight of each of its losses."""
    corrupt: Callable[[Rows, jax.Array], Any]
    """(rows, keys [rows]) -> inputs: a pytree of arrays [rows, ...]. Uses no parameters."""
    count: Callable[[Any], dict[str, jax.Array]]
    """Labelled inputs -> how much each row will predict, by loss, float32 [rows]."""
    loss: Callable[[Params, Any, Any, jax.Array | None], dict[str, LossSums]]
    """(params, state, labelled inputs, dropout keys or None) -> each loss by row."""
    flops: Callable[[int, int], float]
    """(rows, their length) -> floating-point operations of a step, as `flops` counts them."""
    parts: Mapping[str, Callable[[jax.Array], Params]]
    """What it needs among the parameters beside the encoder: (key) -> parameters, by name."""
    label: Callable[[Params, Any, Any, EachPart], Any] = _unlabelled
    """(params, state, inputs, each_part) -> inputs, with what current parameters say of them."""
    init_state: Callable[[Params], Any] = _stateless
    """(initial params) -> its state; an empty dict for most."""
    update: Callable[[Any, Params, Any], Any] = _unchanged
    """(state, the step's new params, labelled inputs of all rows) -> the next state."""

    @property
    def evolves(self) -> bool:
        """Whether its state changes from step to step."""
        return self.update is not _unchanged
