"""A compiled step takes its state's place, and holds no second copy of the parameters."""

import jax
import numpy as np

from xlj import config as schema
from xlj.config import parse
from xlj.planning import programs
from xlj.training import partitioning, phases
from xlj.training import state as states
from xlj.training.memory import expected


def compiled():
    """Memory of the step of a model that is nearly all kernels, bytes of its parameters, and
    of its state."""
    config = schema.default()
    config.data.languages, config.data.mono = "en,de", "phrasebook:{language}"
    config.data.vocabulary_size, config.data.length = 1_000, 32
    model = config.model
    model.layers, model.hidden, model.heads, model.intermediate = 6, 512, 2, 2048
    model.positions = 34
    config.objectives.mmlm.batch_rows = 2
    config = parse(config)
    sizes, mesh = expected(config), partitioning.one_device()
    state = states.abstract(config, sizes.corpus, mesh)
    where = jax.tree.map(lambda leaf: leaf.sharding, state)
    (step,) = phases.jitted_steps(config, sizes.corpus, mesh, where)
    batch = phases.abstract_batch(programs.rows_of(config, sizes, 0), np.uint32, mesh)
    program = step.lower(state, batch).compile()

    def size(tree):
        return sum(map(partitioning.bytes_on_device, jax.tree.leaves(tree)))

    return program.memory_analysis(), size(state.params), size(state)


def test_a_step_updates_its_state_in_place():
    """Its buffers are donated: all of them become the next state's. Beside them it needs one and a
    half arrays for each parameter on a CPU: two where the norm's squares are written, and more than
    three with a guard that chose between old and new states after the update, as it once did."""
    memory, parameters, state = compiled()
    assert memory.alias_size_in_bytes >= state > 3 * parameters
    assert memory.output_size_in_bytes - memory.alias_size_in_bytes < 1_000
    assert memory.temp_size_in_bytes < 1.7 * parameters, memory.temp_size_in_bytes / parameters
