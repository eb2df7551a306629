"""The jitted step of each phase of a run, and the batch that it takes."""

from collections.abc import Callable, Mapping
from typing import Protocol

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.typing import DTypeLike

from xlj.config import Config
from xlj.contracts.arrays import PyTree
from xlj.data.rows.corpus import Corpus
from xlj.objectives import build
from xlj.objectives.objective import Rows
from xlj.sharding import meshes
from xlj.sharding.rules import ROWS
from xlj.training.state import State
from xlj.training.step import Batch, make_train_step

Plain = Callable[[State, Batch], State]


class Step(Protocol):
    """The jitted step of a phase."""

    def __call__(self, state: State, batch: Batch, /) -> tuple[State, jax.Array]:
        """The next state, which takes the place of the last, and `skipped_in_a_row`."""

    def lower(self, state: State, batch: Batch, /) -> jax.stages.Lowered:
        """It, traced for arrays of these shapes, types and shardings."""


def jitted_steps(config: Config, corpus: Corpus, mesh: Mesh, sharding: State) -> list[Step]:
    """The step of each phase; a phase that changes alpha alone shares that before it.

    Args:
      sharding: of the state.
    """
    steps: list[Step] = []
    before: Config | None = None
    for start, phase in config.schedule:
        if before is not None and phase.objectives == before.objectives:
            steps.append(steps[-1])
            continue
        already = before.objectives.active() if before is not None else {}
        active = phase.objectives.active()
        begins = {name: start for name in active if name not in already}
        step = make_train_step(phase, build(active, config.model, corpus), mesh, begins)

        def with_flag(state: State, batch: Batch, step: Plain = step) -> tuple[State, jax.Array]:
            state = step(state, batch)
            return state, state.progress.skipped_in_a_row

        jitted = jax.jit(
            with_flag,
            donate_argnums=0,
            out_shardings=(sharding, None),
            compiler_options=meshes.compiler_options(mesh),
        )
        steps.append(jitted)
        before = phase
    return steps


def abstract_batch(shapes: Mapping[str, tuple[int, int]], dtype: DTypeLike, mesh: Mesh) -> Batch:
    """Shapes, types and shardings of a batch.

    Args:
      shapes: (rows, their length) of each objective.
      dtype: of a row's ids.
    """
    rows = NamedSharding(mesh, ROWS)

    def abstract(shape: tuple[int, int], dtype: DTypeLike) -> PyTree:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=rows)

    return {
        name: Rows(abstract(shape, dtype), abstract((shape[0], 2), jnp.int32))
        for name, shape in shapes.items()
    }
