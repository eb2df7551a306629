"""Compiles the train step of a phase for devices that need not be present."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from xlj.config import Config
from xlj.models.attention.interface import Cost
from xlj.optimizers import Rates
from xlj.sharding import meshes
from xlj.tools.planning.hlo import Call, stated_costs
from xlj.training import resources
from xlj.training import state as states
from xlj.training.memory import Sizes
from xlj.training.state import State


class DoesNotFit(Exception):
    """The compiler reports that a program needs more memory than the chip has.

    Attributes:
      needed: the bytes that the program needs; 0 if the message does not contain this number.
    """

    def __init__(self, message: str):
        super().__init__(message)
        used = re.search(r"[Uu]sed ([\d.]+)([KMGT]) of", message)
        self.needed = float(used[1]) * 2 ** (10 * " KMGT".index(used[2])) if used else 0.0


class StepProgram(NamedTuple):
    """A compiled train step.

    Attributes:
      state: the run's state as shapes with shardings.
      text: the text of the program.
      kernels: the operations and bytes that its kernels state.
      arguments: bytes of the state and the batch on a device.
      working: bytes of temporary arrays on a device: activations, gradients, gathered parameters.
      peak: bytes on a device in total: arguments, temporary arrays, results with memory of their
        own, and code.
    """

    state: State
    text: str
    kernels: Mapping[Call, Cost]
    arguments: float
    working: float
    peak: float


def trace_phase(
    config: Config, sizes: Sizes, devices: Sequence[jax.Device], phase: int
) -> tuple[State, jax.stages.Traced]:
    """Traces the step of a phase.

    Args:
      phase: the index of the phase.

    Returns:
      The run's state as shapes with shardings, and the traced step.

    Raises:
      ConfigError: if the mesh or the batches do not fit the devices.
    """
    mesh = meshes.make_mesh(config, devices)
    meshes.check_batches(config, mesh)
    state = states.abstract(config, sizes.corpus, mesh)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    steps = resources.jitted_steps(config, sizes.corpus, mesh, shardings)
    step = steps[config.schedule[phase].start]
    ids = "<u2" if sizes.corpus.vocabulary_size <= 2**16 else "<u4"
    options, shapes = config.objectives_by_phase[phase], rows_of(config, sizes, phase)
    batch = resources.abstract_batch(options, shapes, ids, mesh)
    return state, step.trace(state, batch, np.uint32(0), Rates(np.float32(0), np.float32(0)))


def compile_phase(
    config: Config, sizes: Sizes, devices: Sequence[jax.Device], phase: int
) -> StepProgram:
    """Compiles the step of a phase.

    Args:
      phase: the index of the phase.

    Raises:
      ConfigError: if the mesh or the batches do not fit the devices.
      DoesNotFit: if the compiler reports that the step needs too much memory.
    """
    state, traced = trace_phase(config, sizes, devices, phase)
    try:
        compiled = traced.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error) or "memory" in str(error):
            raise DoesNotFit(str(error)) from None
        raise
    memory: Any = compiled.memory_analysis()
    arguments = memory.argument_size_in_bytes
    new_results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    peak = arguments + memory.temp_size_in_bytes + max(0, new_results)
    peak += memory.generated_code_size_in_bytes
    text = compiled.as_text() or ""
    kernels = stated_costs(traced.jaxpr.jaxpr)
    return StepProgram(state, text, kernels, arguments, memory.temp_size_in_bytes, peak)


def rows_of(config: Config, sizes: Sizes, phase: int) -> dict[str, tuple[int, int]]:
    """Returns (rows of all devices, row length in tokens) of each objective's batch in a phase."""
    active = config.objectives_by_phase[phase]
    return {name: (o.batch_size, sizes.lengths[phase][o.rows_name]) for name, o in active.items()}
