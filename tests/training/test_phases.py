"""A compiled step reuses the buffers of its state, and has no second copy of the parameters."""

import itertools
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from xlj import config as schema
from xlj import objectives
from xlj.config import parse
from xlj.optimizers.schedules import rates
from xlj.planning import programs
from xlj.sharding import meshes, trees
from xlj.training import phases
from xlj.training import state as states
from xlj.training.memory import expected_sizes


def compiled(layers=6, rows=2, hidden=512):
    """Memory of the step of a model that is nearly all kernels, bytes of its parameters, and
    of its state."""
    config = schema.default()
    config.data.languages, config.data.mono = "en,de", "phrasebook:{language}"
    config.data.vocabulary_size, config.data.length = 1_000, 32
    model = config.model
    model.layers, model.hidden, model.heads, model.intermediate = layers, hidden, 2, 4 * hidden
    model.positions, model.dropout, model.attention_dropout = 34, 0.0, 0.0
    config.objectives.mmlm.batch_rows = rows
    config = parse(config)
    sizes, mesh = expected_sizes(config), meshes.one_device()
    state = states.abstract(config, sizes.corpus, mesh)
    where = jax.tree.map(lambda leaf: leaf.sharding, state)
    (step,) = phases.jitted_steps(config, sizes.corpus, mesh, where).values()
    batch = phases.abstract_batch(programs.rows_of(config, sizes, 0), np.uint32, mesh)
    program = step.lower(state, batch, np.uint32(0), rates(config, 0)).compile()

    def size(tree):
        return sum(map(trees.bytes_on_device, jax.tree.leaves(tree)))

    return program.memory_analysis(), size(state.params), size(state)


def test_a_step_updates_its_state_in_place():
    """The buffers of the state are donated and reused for the next state. In addition a step needs
    1.2 arrays per parameter on a CPU: 1.4 in XLA's own order of operations, 2 if the squares of the
    norm are written, and more than 3 if a guard selects between old and new states after the
    update, as it once did."""
    memory, parameters, state = compiled()
    assert memory.alias_size_in_bytes >= state > 3 * parameters
    assert memory.output_size_in_bytes - memory.alias_size_in_bytes < 1_000
    most = 1.29 if meshes.has_memory_order() else 1.5
    assert memory.temp_size_in_bytes < most * parameters, memory.temp_size_in_bytes / parameters


def test_arrays_that_a_layer_saves_for_the_backward_pass():
    """For each vector, in a loop on a CPU: the inputs and outputs of two norms, query, key, value
    and the result of attention for the product and for the softmax, all of width h. The input and
    output of the GELU, of width 4 h, without erf. The attention weights of two heads."""
    rows, hidden = 64, 32
    few, many = (compiled(layers, rows, hidden) for layers in (4, 12))
    parameters = many[1] - few[1]
    bytes_of = (many[0].temp_size_in_bytes - few[0].temp_size_in_bytes - parameters) / 8
    kept = bytes_of / 4 / (rows * 32)
    assert kept < (2 + 3 + 2 + 2 + 8 + 0.5) * hidden + 2 * 32, kept / hidden


@pytest.mark.skipif(
    not meshes.has_memory_order(), reason="this XLA has one order of operations only"
)
def test_a_state_is_made_with_nothing_beside_it(tiny):
    """Without a fixed order, XLA would draw the random bits of all parameters at once."""
    config = parse(tiny)
    corpus, mesh = expected_sizes(config).corpus, meshes.one_device()
    where = states.sharding(config, corpus, mesh)
    init = states.jitted_init(config, corpus, mesh, where)
    memory = init.lower(np.uint32(0)).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 0.01 * memory.output_size_in_bytes


def test_the_step_of_each_phase_has_its_objectives_weights_and_model(tiny, monkeypatch):
    """A phase that changes only rates or shares uses the step of the phase before it."""
    tiny.train.steps, tiny.model.absolute_positions, tiny.model.rotary_base = 9, False, 10.0
    tiny.phases = {
        "alpha": {"start_step": 2, "data": {"alpha": 0.1, "sampled": "en"}},
        "weights": {"start_step": 3, "objectives": {"tlm": {"weight": 4.0}}},
        "rates": {"start_step": 4, "optimizer": {"learning_rate": 1.0, "schedule": "constant"}},
        "longer": {"start_step": 5, "data": {"length": 40}},
        "bases": {"start_step": 6, "model": {"rotary_base": 20.0}},
        "parts": {"start_step": 7, "train": {"accumulation": 2}},
        "alone": {"start_step": 8, "objectives": {"mmlm": {"batch_rows": 0}}},
    }
    result, bases = [], []

    def build(options, model, corpus):
        bases.append(model.rotary_base)
        return objectives.build(options, model, corpus)

    def make(config, objectives, mesh, begins):
        result.append({name: each.losses[name].weight for name, each in objectives.items()})
        return lambda state, *_: state

    monkeypatch.setattr(phases, "build", build)
    monkeypatch.setattr(phases, "make_train_step", make)
    config = parse(tiny)
    steps = phases.jitted_steps(config, expected_sizes(config).corpus, meshes.one_device(), None)
    heavy = {"mmlm": 1, "tlm": 4}
    assert result == [{"mmlm": 1, "tlm": 1}, heavy, heavy, heavy, heavy, {"tlm": 4}]
    assert bases == [10, 10, 10, 20, 20, 20]
    assert list(steps) == [0, 2, 3, 4, 5, 6, 7, 8]
    shared = [step for step, before in itertools.pairwise(steps) if steps[step] is steps[before]]
    assert shared == [0, 3]


def test_cpus_have_options_only_alone(tiny):
    several = meshes.make_mesh(parse(tiny), jax.devices()[:2])
    assert several.size == 2 and meshes.compiler_options(several) == {}


def test_products_are_not_merged_on_gpus():
    device = SimpleNamespace(platform="gpu")
    mesh = SimpleNamespace(size=2, devices=np.array([device, device]))
    assert meshes.compiler_options(mesh) == {"xla_gpu_dot_merger_threshold_mb": 0}
