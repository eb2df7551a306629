"""The interface of an objective: pure functions of rows, parameters and the objective's state."""

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import jax
from jax.sharding import PartitionSpec

from xlj.config import Config, Model, Options
from xlj.contracts.arrays import Specified, check
from xlj.data.rows.row_kind import Field
from xlj.data.rows.store import Corpus
from xlj.models.dropout import Rngs
from xlj.models.segments import Rows
from xlj.sharding.trees import Params


def abstract_rows(fields: Iterable[Field], rows: int) -> dict[str, Any]:
    """Returns the shapes and dtypes of the rows of a batch, without values.

    Args:
      fields: the fields of a row (`RowKind.batch_fields`).
      rows: the number of rows.
    """
    return {field.name: jax.ShapeDtypeStruct((rows, *field.shape), field.dtype) for field in fields}


def check_rows(function: str, rows: Rows, **more: Specified) -> None:
    """Checks `tokens` and `languages` of rows, and more arguments, with `arrays.check`."""
    check(
        function,
        tokens=("int [rows, length]", rows["tokens"]),
        languages=("int [rows, 2]", rows["languages"]),
        **more,
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LossSums:
    """Sums of a loss and of its predictions: float32 [rows] with one sum per row, or float32 [].

    The training step divides by the number of predictions of the whole step, not of a device or a
    microbatch.
    """

    sum: jax.Array
    """Sum of the losses of all predictions."""
    count: jax.Array
    """Number of predictions."""
    correct: jax.Array
    """Number of correct predictions."""

    @classmethod
    def weighted(cls, losses: jax.Array, correct: jax.Array, weights: jax.Array) -> "LossSums":
        """Sums the losses, counts and correct predictions of each row.

        Args:
          losses: the loss of each prediction, float32 [rows, n].
          correct: whether each prediction is correct, bool or float32 [rows, n].
          weights: 1 for predictions, 0 for unused slots, float32 [rows, n].
        """
        return cls((losses * weights).sum(1), weights.sum(1), (correct * weights).sum(1))


Losses = dict[str, LossSums]
"""The sums of each loss, by its name."""

Inputs = TypeVar("Inputs")
"""The inputs of an objective, which it computes from rows: a pytree of arrays [rows, ...]."""
ObjectiveState = TypeVar("ObjectiveState")
"""The state of an objective: a pytree of arrays."""
Argument = TypeVar("Argument")
Result = TypeVar("Result")


class ByMicrobatch(Protocol):
    """Applies a function of rows to one microbatch after another."""

    def __call__(self, function: Callable[[Argument], Result], inputs: Argument, /) -> Result:
        """Returns the results for all rows of `inputs`, a pytree of arrays [rows, ...]."""


@dataclasses.dataclass(frozen=True)
class Loss:
    """One of an objective's losses."""

    weight: float
    """The factor of this loss in the total loss of a step."""
    over_vocabulary: bool = False
    """Whether this loss is a cross-entropy of tokens, so that its exponential is a perplexity."""


def _same_inputs(params: Params, state: object, inputs: Inputs, _: ByMicrobatch) -> Inputs:
    return inputs


def _no_state(params: Params) -> Any:
    return {}


def _unchanged(state: ObjectiveState, params: Params, inputs: object) -> ObjectiveState:
    return state


def with_gradient(values: jax.Array, gradients: jax.Array, outputs: jax.Array) -> jax.Array:
    """Returns `values`, with a gradient at `outputs` that was computed before, in `targets`.

    So a loss of the whole batch is a sum over rows, as `Objective.loss` must be (GradCache, Gao et
    al., 2021).

    Args:
      values: float32 [rows].
      gradients: the gradient at each output, in the shape of `outputs`.
      outputs: float32 [rows, ...], of the present parameters.
    """
    check(
        "with_gradient",
        values=("float [rows]", values),
        gradients=("float [rows, outputs...]", gradients),
        outputs=("float [rows, outputs...]", outputs),
    )
    linear = (gradients * outputs).reshape(len(values), -1).sum(1)
    return values + linear - jax.lax.stop_gradient(linear)


@dataclasses.dataclass(frozen=True)
class Objective(Generic[Inputs, ObjectiveState]):
    """One objective of a run.

    A training step calls the functions in this order:

    1. `corrupt` and `targets` get all rows of the batch. No gradient passes through them.
    2. `count` counts the predictions of the whole batch, before any gradient.
    3. `loss` gets one microbatch after another. The losses of a row must depend on the inputs of
       this row only.
    4. `update` computes the next state.
    """

    losses: Mapping[str, Loss]
    """The losses of the objective, by name."""
    corrupt: Callable[[Rows, jax.Array], Inputs]
    """(rows, a random key for each row [rows]) -> inputs: a pytree of arrays [rows, ...]. The
    function uses no parameters."""
    count: Callable[[Inputs], dict[str, jax.Array]]
    """(inputs with targets) -> for each loss, the number of predictions of each row, float32
    [rows]."""
    loss: Callable[[Params, ObjectiveState, Inputs, Rngs], Losses]
    """(params, state, inputs with targets, a random key for each row or None) -> the sums of each
    loss, by row. The keys are for dropout; None in evaluation."""
    parts: Mapping[str, Callable[[jax.Array], Params]] = dataclasses.field(default_factory=dict)
    """The parameters that the objective adds to the encoder's parameters, by name: (random key) ->
    initial values."""
    rules: tuple[tuple[str, PartitionSpec], ...] = ()
    """Sharding rules for the objective's parameters and state: pairs (regular expression, partition
    specification). The expression must match the name of an array, such as `queue` or
    `generator/head/dense/kernel`, or the end of the name after a slash. The rules of
    `sharding/devices.py` come first. They already cover kernels and biases of heads `NAME_head`."""
    targets: Callable[[Params, ObjectiveState, Inputs, ByMicrobatch], Inputs] = _same_inputs
    """(params, state, inputs, by_microbatch) -> inputs with targets, which the function computes
    from the current parameters."""
    init_state: Callable[[Params], ObjectiveState] = _no_state
    """(initial params) -> initial state; an empty dict for objectives without state."""
    update: Callable[[ObjectiveState, Params, Inputs], ObjectiveState] = _unchanged
    """(state, params after the step, inputs of all rows with targets) -> next state."""

    @property
    def evolves(self) -> bool:
        """Whether the state changes from step to step."""
        return self.update is not _unchanged


def build(options: Mapping[str, Options], model: Model, corpus: Corpus) -> dict[str, Objective]:
    """Builds objectives.

    Args:
      options: the options of each objective, by its name. Their `implementation` is
        `module:function`.

    Returns:
      The objectives, by name.
    """
    built = {}
    for name, objective_options in options.items():
        module, _, function = objective_options.implementation.partition(":")
        built[name] = getattr(importlib.import_module(module), function)(
            name, objective_options, model, corpus
        )
    return built


def build_all(config: Config, corpus: Corpus) -> dict[str, Objective]:
    """Builds all objectives of a run, each with the options of the first phase that uses it."""
    return build(config.objectives_on(), config.model, corpus)
