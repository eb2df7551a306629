"""The interface of an objective: pure functions of rows, parameters and the objective's state."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax
from jax.sharding import PartitionSpec

from xlj.contracts.arrays import Specified, check
from xlj.models.dropout import Rngs
from xlj.models.encoder import Params
from xlj.objectives.flops import Operations


class Rows(NamedTuple):
    """Rows of one objective."""

    tokens: jax.Array
    """Token ids [rows, length], int32 or the type on disk."""
    languages: jax.Array
    """int32 [rows, 2], the language of each side as an index into the corpus's languages; the same
    for both in rows of text."""

    def check(self, function: str, **more: Specified) -> None:
        """Checks the arrays, and more arguments, with `xlj.contracts.arrays.check`."""
        check(
            function,
            tokens=("int [rows, length]", self.tokens),
            languages=("int [rows, 2]", self.languages),
            **more,
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LossSums:
    """Sums of a loss by row, float32 [rows] each, or over rows, float32 [] each.

    The step normalises once, over all rows of all devices and microbatches.
    """

    sum: jax.Array
    """Sum of the losses of all predictions."""
    count: jax.Array
    """Number of predictions."""
    correct: jax.Array
    """Number of correct predictions."""

    @classmethod
    def weighted(cls, losses: jax.Array, correct: jax.Array, weights: jax.Array) -> "LossSums":
        """Sums the losses and correct predictions of each row, [rows, n] each.

        Predictions with a weight of 0 do not count.
        """
        return cls((losses * weights).sum(1), weights.sum(1), (correct * weights).sum(1))


Losses = dict[str, LossSums]
"""Sums by the name of the loss."""

Inputs = TypeVar("Inputs")
"""The inputs of an objective, computed from rows: a pytree of arrays [rows, ...]."""
ObjectiveState = TypeVar("ObjectiveState")
"""The state of an objective: a pytree of arrays."""
Argument = TypeVar("Argument")
Result = TypeVar("Result")


class ByMicrobatch(Protocol):
    """Computes a function of rows for one microbatch after another."""

    def __call__(self, function: Callable[[Argument], Result], inputs: Argument, /) -> Result:
        """Returns the results for all rows of `inputs`, a pytree of arrays [rows, ...]."""


@dataclasses.dataclass(frozen=True)
class Loss:
    """One of an objective's losses."""

    weight: float
    """Its weight in the loss of a step."""
    over_vocabulary: bool = False
    """Whether it is a cross-entropy of tokens, so that its exp is a perplexity."""


def _same_inputs(params: Params, state: object, inputs: Inputs, _: ByMicrobatch) -> Inputs:
    return inputs


def _no_state(params: Params) -> Any:
    return {}


def _unchanged(state: ObjectiveState, params: Params, inputs: object) -> ObjectiveState:
    return state


@dataclasses.dataclass(frozen=True)
class Objective(Generic[Inputs, ObjectiveState]):
    """One objective of a run.

    In a step, `corrupt` and `targets` get all rows of the batch and pass no gradient, so that
    counts are known before the gradient. Then `loss` gets one microbatch after another; the losses
    of a row depend on the inputs of that row only. Finally, `update` computes the next state.
    """

    losses: Mapping[str, Loss]
    """Its losses by name."""
    corrupt: Callable[[Rows, jax.Array], Inputs]
    """(rows, rngs [rows]) -> inputs: a pytree of arrays [rows, ...]. Uses no parameters."""
    count: Callable[[Inputs], dict[str, jax.Array]]
    """Inputs with targets -> the number of predictions of each row, by loss, float32 [rows]."""
    loss: Callable[[Params, ObjectiveState, Inputs, Rngs], Losses]
    """(params, state, inputs with targets, dropout rngs) -> each loss by row."""
    flops: Callable[[int, int], Operations] | None = None
    """(rows, length of a row) -> floating-point operations of a step, by the convention of `flops`;
    None to count them in the traced program (`counting`)."""
    parts: Mapping[str, Callable[[jax.Array], Params]] = dataclasses.field(default_factory=dict)
    """The parameters that it adds to the encoder's, by name: (rng) -> initial values."""
    rules: tuple[tuple[str, PartitionSpec], ...] = ()
    """Sharding of its own parameters and state: (regular expression over a name, axes), applied
    after the rules in `sharding/rules.py`. Heads, `NAME_head/...`, need no rules."""
    targets: Callable[[Params, ObjectiveState, Inputs, ByMicrobatch], Inputs] = _same_inputs
    """(params, state, inputs, by_microbatch) -> inputs with targets computed from the current
    parameters."""
    init_state: Callable[[Params], ObjectiveState] = _no_state
    """(initial params) -> its state; an empty dict for most objectives."""
    update: Callable[[ObjectiveState, Params, Inputs], ObjectiveState] = _unchanged
    """(state, the step's new params, inputs of all rows with targets) -> the next state."""

    @property
    def evolves(self) -> bool:
        """Whether its state changes from step to step."""
        return self.update is not _unchanged
