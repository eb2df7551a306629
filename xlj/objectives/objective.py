"""The contract of an objective: pure functions of rows, parameters, and a state of its own."""

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
    """Token ids [rows, length], int32 or as on disk."""
    languages: jax.Array
    """int32 [rows, 2], of each side, as indices into the corpus's languages; text has one twice."""

    def check(self, function: str, **more: Specified) -> None:
        """Checks these, and more that a function is given, as `xlj.contracts.arrays.check`."""
        check(
            function,
            tokens=("int [rows, length]", self.tokens),
            languages=("int [rows, 2]", self.languages),
            **more,
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LossSums:
    """A loss by row, float32 [rows] each (or summed over rows): the step normalises once, over all
    rows, and globally."""

    sum: jax.Array
    """Sum of the losses of all predictions."""
    count: jax.Array
    """Number of predictions."""
    correct: jax.Array
    """Number of right predictions."""

    @classmethod
    def weighted(cls, losses: jax.Array, correct: jax.Array, weights: jax.Array) -> "LossSums":
        """Sums over each row of the losses and hits of its predictions, [rows, n] each; those with
        a weight of 0 do not count."""
        return cls((losses * weights).sum(1), weights.sum(1), (correct * weights).sum(1))


Losses = dict[str, LossSums]
"""By the name of the loss."""

Inputs = TypeVar("Inputs")
"""What an objective makes of rows: a pytree of arrays [rows, ...]."""
Kept = TypeVar("Kept")
"""The state of an objective: a pytree of arrays."""
Given = TypeVar("Given")
Found = TypeVar("Found")


class ByMicrobatch(Protocol):
    """Computes a function of rows a microbatch at a time."""

    def __call__(self, function: Callable[[Given], Found], inputs: Given, /) -> Found:
        """The function's result for all rows of `inputs`, a pytree of arrays [rows, ...]."""


@dataclasses.dataclass(frozen=True)
class Loss:
    """One of an objective's losses."""

    weight: float
    """Its weight in the loss of a step."""
    over_vocabulary: bool = False
    """Whether it is a cross-entropy of tokens, so that its exp is a perplexity."""


def _as_they_are(params: Params, state: object, inputs: Inputs, _: ByMicrobatch) -> Inputs:
    return inputs


def _none(params: Params) -> Any:
    return {}


def _unchanged(state: Kept, params: Params, inputs: object) -> Kept:
    return state


@dataclasses.dataclass(frozen=True)
class Objective(Generic[Inputs, Kept]):
    """One objective of a run.

    In a step, `corrupt` and `targets` see all rows of the batch and pass no gradient, so that
    counts are known before the gradient; then `loss` sees one microbatch after another, and each
    row's losses depend on that row's inputs only; at the end, `update` makes the next state.
    """

    losses: Mapping[str, Loss]
    """Its losses by name."""
    corrupt: Callable[[Rows, jax.Array], Inputs]
    """(rows, rngs [rows]) -> inputs: a pytree of arrays [rows, ...]. Uses no parameters."""
    count: Callable[[Inputs], dict[str, jax.Array]]
    """Inputs with targets -> the number of predictions of each row, by loss, float32 [rows]."""
    loss: Callable[[Params, Kept, Inputs, Rngs], Losses]
    """(params, state, inputs with targets, dropout rngs) -> each loss by row."""
    flops: Callable[[int, int], Operations] | None = None
    """(rows, their length) -> floating-point operations of a step, as `flops` counts them; None to
    have them counted from the traced program (`counting`)."""
    parts: Mapping[str, Callable[[jax.Array], Params]] = dataclasses.field(default_factory=dict)
    """The parameters that it needs beside the encoder's, by name: (rng) -> their initial values."""
    rules: tuple[tuple[str, PartitionSpec], ...] = ()
    """How its own parameters and arrays of its state are sharded: (regular expression over a name,
    axes), after the rules in `sharding/rules.py`. Heads, `NAME_head/...`, need none."""
    targets: Callable[[Params, Kept, Inputs, ByMicrobatch], Inputs] = _as_they_are
    """(params, state, inputs, by_microbatch) -> inputs, with the targets that the current
    parameters give them."""
    init_state: Callable[[Params], Kept] = _none
    """(initial params) -> its state; an empty dict for most."""
    update: Callable[[Kept, Params, Inputs], Kept] = _unchanged
    """(state, the step's new params, inputs of all rows with targets) -> the next state."""

    @property
    def evolves(self) -> bool:
        """Whether its state changes from step to step."""
        return self.update is not _unchanged
