"""A compiled step reuses the buffers of its state, and has no second copy of the parameters."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj import config as schema
from xlj.config import parse
from xlj.objectives import objective
from xlj.objectives.objective import Loss, LossSums, Objective
from xlj.sharding import meshes, trees
from xlj.tools.planning import programs
from xlj.training import resources
from xlj.training import state as states
from xlj.training.memory import expected_sizes
from xlj.training.schedule import Schedule
from xlj.training.state import Progress, State


def compiled(layers=6, rows=2, hidden=512):
    """Returns the memory analysis of a compiled step, and the bytes of its parameters and state.

    Nearly all parameters of the model are in kernels."""
    config = schema.default()
    config.data.languages, config.data.mono = "en,de", "phrasebook:{language}"
    config.data.vocabulary_size, config.data.length = 1_000, 32
    model = config.model
    model.layers, model.hidden, model.heads, model.intermediate = layers, hidden, 2, 4 * hidden
    model.positions, model.dropout, model.attention_dropout = 34, 0.0, 0.0
    config.objectives.mmlm.batch_size = rows
    config = parse(config)
    sizes, mesh = expected_sizes(config), meshes.one_device()
    state = states.abstract(config, sizes.corpus, mesh)
    sharding = jax.tree.map(lambda leaf: leaf.sharding, state)
    (step,) = resources.jitted_steps(config, sizes.corpus, mesh, sharding).values()
    batch = resources.abstract_batch(
        config.objectives_on(), programs.rows_of(config, sizes, 0), "<u4", mesh
    )
    program = step.lower(state, batch, np.uint32(0), Schedule(config, None).at(0).rates).compile()

    def size(tree):
        return sum(map(trees.bytes_on_device, jax.tree.leaves(tree)))

    return program.memory_analysis(), size(state.params), size(state)


def test_a_step_updates_its_state_in_place():
    """The buffers of the state are donated and reused for the next state. On a CPU, a step also
    needs temporary memory of 1.2 times the size of the parameters. It would be 1.4 in XLA's own
    order of operations, 2 if the squares of the gradient norm were written to memory, and more than
    3 if a guard selected between the old and the new state after the update."""
    memory, parameters, state = compiled()
    assert memory.alias_size_in_bytes >= state > 3 * parameters
    assert memory.output_size_in_bytes - memory.alias_size_in_bytes < 1_000
    most = 1.29 if meshes.has_memory_order() else 1.5
    assert memory.temp_size_in_bytes < most * parameters, memory.temp_size_in_bytes / parameters


@pytest.mark.slow
def test_a_layer_saves_few_arrays_for_the_backward_pass():
    """For each token, a layer in a loop on a CPU saves arrays of width h: inputs and outputs of two
    norms, query, key, value, and the result of attention for the product and for the softmax. It
    saves the input and output of the GELU (without erf), of width 4 h, and the attention weights of
    two heads."""
    rows, hidden = 64, 32
    few, many = (compiled(layers, rows, hidden) for layers in (4, 12))
    parameters = many[1] - few[1]
    bytes_per_layer = (many[0].temp_size_in_bytes - few[0].temp_size_in_bytes - parameters) / 8
    saved = bytes_per_layer / 4 / (rows * 32)
    assert saved < (2 + 3 + 2 + 2 + 8 + 0.5) * hidden + 2 * 32, saved / hidden


def test_initialising_a_state_needs_almost_no_temporary_memory(tiny):
    """Without a fixed order of operations, XLA would draw the random bits of all parameters at
    once."""
    if not meshes.has_memory_order():  # not in a decorator: JAX may not start on import
        pytest.skip("this XLA has one order of operations only")
    config = parse(tiny)
    corpus, mesh = expected_sizes(config).corpus, meshes.one_device()
    sharding = states.sharding(config, corpus, mesh)
    init = states.jitted_init(config, corpus, mesh, sharding)
    memory = init.lower(np.uint32(0)).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 0.01 * memory.output_size_in_bytes


def test_the_step_of_each_phase_has_the_weights_and_the_model_of_the_phase(tiny, monkeypatch):
    """A phase that changes only rates or shares uses the step of the phase before it."""
    tiny.train.steps, tiny.model.absolute_positions, tiny.model.rotary_base = 9, False, 10.0
    tiny.phases = {
        "alpha": {"start_step": 2, "data": {"alpha": 0.1, "sampled": "en"}},
        "weights": {"start_step": 3, "objectives": {"tlm": {"weight": 4.0}}},
        "rates": {"start_step": 4, "optimizer": {"learning_rate": 1.0, "schedule": "constant"}},
        "longer": {"start_step": 5, "data": {"length": 40}},
        "bases": {"start_step": 6, "model": {"rotary_base": 20.0}},
        "parts": {"start_step": 7, "train": {"gradient_accumulation_steps": 2}},
        "alone": {"start_step": 8, "objectives": {"mmlm": {"batch_size": 0}}},
    }
    result, bases = [], []

    def build(options, model, corpus):
        bases.append(model.rotary_base)
        return objective.build(options, model, corpus)

    def make(config, objectives, mesh, begins):
        result.append({name: each.losses[name].weight for name, each in objectives.items()})
        return lambda state, *_: state

    monkeypatch.setattr(resources, "build", build)
    monkeypatch.setattr(resources, "make_train_step", make)
    config = parse(tiny)
    steps = resources.jitted_steps(config, expected_sizes(config).corpus, meshes.one_device(), None)
    heavy = {"mmlm": 1, "tlm": 4}
    assert result == [{"mmlm": 1, "tlm": 1}, heavy, heavy, heavy, heavy, {"tlm": 4}]
    assert bases == [10, 10, 10, 20, 20, 20]
    assert list(steps) == [0, 2, 3, 4, 5, 6, 7, 8]
    shared = [step for step, before in itertools.pairwise(steps) if steps[step] is steps[before]]
    assert shared == [0, 3]


def step_counter(name):
    """An objective without parameters whose state is the number of its steps."""

    def no_loss(params, state, inputs, rngs):
        zeros = jnp.zeros(len(inputs))
        return {name: LossSums(zeros, zeros, zeros)}

    return Objective(
        losses={name: Loss(0.0)},
        corrupt=lambda rows, rngs: rows["tokens"],
        count=lambda inputs: {name: jnp.zeros(len(inputs))},
        loss=no_loss,
        init_state=lambda params: {"steps": jnp.zeros((), jnp.int32)},
        update=lambda state, params, inputs: {"steps": state["steps"] + 1},
    )


def test_the_state_of_an_objective_restarts_only_after_a_phase_without_the_objective(
    tiny, monkeypatch
):
    """MMLM is on in all phases, so it counts the steps of all phases. TLM is off in the second
    phase, so after the third phase it has counted the steps of this phase only."""
    tiny.train.steps = 7
    tiny.phases = {
        "without": {"start_step": 2, "objectives": {"tlm": {"batch_size": 0}}},
        "again": {"start_step": 5, "objectives": {"tlm": {"batch_size": 16}}},
    }
    config, mesh = parse(tiny), meshes.one_device()
    counters = {name: step_counter(name) for name in ("mmlm", "tlm")}
    monkeypatch.setattr(resources, "build", lambda active, *_: {n: counters[n] for n in active})
    zero, none = jnp.zeros((), jnp.int32), jnp.zeros(())
    state = State(
        params={},
        optimizer=(),
        objectives={name: each.init_state({}) for name, each in counters.items()},
        progress=Progress(
            zero, zero, zero, zero, none, none, dict.fromkeys(counters, LossSums(none, none, none))
        ),
    )
    # The step reuses the memory of its state, so each leaf needs its own memory.
    state = jax.device_put(jax.tree.map(np.array, state), trees.replicated(mesh))
    sharding = jax.tree.map(lambda leaf: leaf.sharding, state)
    steps = resources.jitted_steps(config, expected_sizes(config).corpus, mesh, sharding)
    rows, counts = (
        {"tokens": np.zeros((2, 3), np.uint32), "languages": np.zeros((2, 2), np.int32)},
        [],
    )
    for number in range(config.train.steps):
        batch = dict.fromkeys(config.phase_at(number).active(), rows)
        arguments = state, batch, np.uint32(0), Schedule(config, None).at(number).rates
        if number in steps:
            step = steps[number]
            step.compile(*arguments)
        state, _ = step(*arguments)
        counts.append(tuple(int(state.objectives[name]["steps"]) for name in counters))
    assert counts == [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1), (7, 2)]


def test_a_mesh_of_several_cpus_has_no_compiler_options(tiny):
    several = meshes.make_mesh(parse(tiny), jax.devices()[:2])
    assert several.size == 2 and meshes.compiler_options(several) == {}
    assert meshes.compiler_options(meshes.one_device())


def test_matrix_products_are_not_merged_on_gpus():
    device = SimpleNamespace(platform="gpu")
    mesh = SimpleNamespace(size=2, devices=np.array([device, device]))
    assert meshes.compiler_options(mesh) == {"xla_gpu_dot_merger_threshold_mb": 0}


@pytest.mark.parametrize(
    "seconds, expected",
    [
        (1.2, "about 1 second"),
        (0.2, "about 0 seconds"),
        (119.4, "about 119 seconds"),
        (120, "about 2.0 minutes"),
        (7_199, "about 120.0 minutes"),
        (7_200, "about 2.0 hours"),
        (172_799, "about 48.0 hours"),
        (172_800 * 1_000, "about 2,000.0 days"),
    ],
)
def test_the_time_left_is_in_the_largest_unit_with_at_least_two(seconds, expected):
    assert resources._in_words(seconds) == expected
