"""The jitted step of each phase of a run, and the shapes of its batch."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from xlj.config import Config, Options
from xlj.data.rows.corpus import Corpus
from xlj.objectives.objective import abstract_rows, build
from xlj.sharding import meshes
from xlj.sharding.rules import ROWS
from xlj.training.state import State
from xlj.training.step import Batch, TrainStep, make_train_step


class Step:
    """The training step of a phase. `compile` must be called once, before the first step.

    Args:
      jitted: the jitted step.

    Attributes:
      program: the compiled program; None before `compile`.
    """

    def __init__(self, jitted: Any):
        self.program: Any = None
        self._jitted = jitted

    def trace(self, *arguments: Any) -> jax.stages.Traced:
        """Traces the step.

        Args:
          arguments: the arguments of `TrainStep`, of which only shapes, dtypes and shardings
            matter.
        """
        return self._jitted.trace(*arguments)

    def lower(self, *arguments: Any) -> jax.stages.Lowered:
        """Traces the step (`trace`), and lowers it for the devices of its arguments."""
        return self.trace(*arguments).lower()

    def compile(self, *arguments: Any) -> None:
        """Compiles the step for arguments of these shapes, dtypes and shardings."""
        self.program = self.lower(*arguments).compile()

    def __call__(self, *arguments: Any) -> tuple[State, jax.Array]:
        """Returns (next state, `skipped_in_a_row`), and reuses the memory of the old state."""
        return self.program(*arguments)


def jitted_steps(config: Config, corpus: Corpus, mesh: Mesh, sharding: State) -> dict[int, Step]:
    """Returns the training step of each phase, by the zero-based number of the phase's first step.

    A phase that changes only learning rates, weight decay or sampling shares has the same `Step` as
    the previous phase.

    Args:
      sharding: of each leaf of the state.
    """
    steps: dict[int, Step] = {}
    before: Config | None = None
    for start, phase in ((phase.start, phase.config) for phase in config.schedule):
        if before is not None and phase.has_same_step_as(before):
            steps[start] = steps[max(steps)]
            continue
        already = before.objectives.active() if before is not None else {}
        active = phase.objectives.active()
        begins = {name: start for name in active if name not in already}
        step = make_train_step(phase, build(active, phase.model, corpus), mesh, begins)

        jitted = jax.jit(
            _with_flag(step),
            donate_argnums=0,
            out_shardings=(sharding, None),
            compiler_options=meshes.compiler_options(mesh),
        )
        steps[start] = Step(jitted)
        before = phase
    return steps


def _with_flag(step: TrainStep) -> Callable[..., tuple[State, jax.Array]]:
    """Returns the step with a second result, `skipped_in_a_row`.

    The next step reuses the memory of the state; the second result stays readable.
    """

    def train_step(*arguments: Any) -> tuple[State, jax.Array]:
        state = step(*arguments)
        return state, state.progress.skipped_in_a_row

    return train_step


def abstract_batch(
    options: Mapping[str, Options], shapes: Mapping[str, tuple[int, int]], ids: str, mesh: Mesh
) -> Batch:
    """Returns the shapes, dtypes and shardings of a batch, without values.

    Args:
      options: the options of each objective, by name.
      shapes: (number of rows, length of a row) of each objective.
      ids: the type of token ids, such as `<u2`.
    """
    sharding = NamedSharding(mesh, ROWS)

    def placed(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    rows = {
        name: abstract_rows(options[name].row_kind.batch_fields(length, ids), count)
        for name, (count, length) in shapes.items()
    }
    batch: Batch = jax.tree.map(placed, rows)
    return batch
