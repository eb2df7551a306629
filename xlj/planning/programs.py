"""The train step of each phase of a run, compiled for devices that need not be here."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from xlj.config import Config
from xlj.optimizers.schedules import rates
from xlj.sharding import meshes
from xlj.training import phases
from xlj.training import state as states
from xlj.training.memory import Sizes
from xlj.training.state import State


class DoesNotFit(Exception):
    """The compiler's own word that a program needs more memory than the chip has.

    Attributes:
      needed: bytes, as far as it says; 0 if it does not.
    """

    def __init__(self, message: str):
        super().__init__(message)
        used = re.search(r"[Uu]sed ([\d.]+)([KMGT]) of", message)
        self.needed = float(used[1]) * 2 ** (10 * " KMGT".index(used[2])) if used else 0.0


class StepProgram(NamedTuple):
    """A phase's train step, compiled."""

    state: State
    """Shapes and shardings."""
    text: str
    arguments: float
    """Bytes of state and batch on a device."""
    working: float
    """Bytes that a device takes beside them: activations, gradients, gathered parameters."""
    peak: float
    """Bytes of all, results and code included."""


def compile_phase(
    config: Config, sizes: Sizes, devices: Sequence[jax.Device], phase: int
) -> StepProgram:
    """Compiles the step of a phase.

    Raises:
      ConfigError: if mesh or batches do not fit the devices.
      DoesNotFit: if the compiler finds that it needs too much memory.
    """
    mesh = meshes.make_mesh(config, devices)
    meshes.check_batches(config, mesh)
    state = states.abstract(config, sizes.corpus, mesh)
    where = jax.tree.map(lambda leaf: leaf.sharding, state)
    steps = phases.jitted_steps(config, sizes.corpus, mesh, where)
    step = steps[config.schedule[phase].start]
    dtype = np.uint16 if sizes.corpus.vocabulary_size <= 2**16 else np.uint32
    batch = phases.abstract_batch(rows_of(config, sizes, phase), dtype, mesh)
    lowered = step.lower(state, batch, np.uint32(0), rates(config, 0))
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error) or "memory" in str(error):
            raise DoesNotFit(str(error)) from None
        raise
    memory: Any = compiled.memory_analysis()
    arguments = memory.argument_size_in_bytes
    fresh = memory.output_size_in_bytes - memory.alias_size_in_bytes
    peak = arguments + memory.temp_size_in_bytes + max(0, fresh)
    peak += memory.generated_code_size_in_bytes
    text = compiled.as_text() or ""
    return StepProgram(state, text, arguments, memory.temp_size_in_bytes, peak)


def rows_of(config: Config, sizes: Sizes, phase: int) -> dict[str, tuple[int, int]]:
    """(rows, their length) of the batch of each objective in a phase."""
    active = config.objectives_by_phase[phase]
    return {name: (o.batch_rows, sizes.lengths[phase][o.rows]) for name, o in active.items()}
