"""Muon for the kernels of layers and AdamW for other parameters, against NumPy and optax."""

import importlib
import re
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax.contrib import MuonDimensionNumbers, muon
from references.optimizers import orthogonalised

from xlj import optimizers
from xlj.config import Config, ConfigError, Mesh, Optimizer, parse
from xlj.interop.task_heads import TASKS
from xlj.optimizers import Rates
from xlj.optimizers.muon import MuonState, direction, rule_of
from xlj.sharding import devices, meshes, trees
from xlj.sharding.devices import STORED
from xlj.training import memory
from xlj.training import state as states

RECIPES = Path(__file__).parents[2] / "configs"

SHAPES = {
    "embeddings/word": (8, 4),
    "layers/attention/query/bias": (2, 4),
    "layers/attention/query/kernel": (2, 4, 4),
    "layers/feed_forward/inner/kernel": (2, 4, 12),
    "layers/feed_forward/outer/kernel": (2, 8, 4),
    "prediction_head/dense/kernel": (4, 4),
}
KERNELS = [name for name in SHAPES if name.startswith("layers/") and name.endswith("kernel")]
OPTIONS = Optimizer(name="muon", momentum=0.8, b1=0.7, b2=0.9, epsilon=0.01)
RATE, DECAY = 0.25, 0.5


def random_arrays(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def updated():
    """A jitted function (gradients, state, params, finite) -> updates and the next state."""
    optimizer, now = optimizers.make(Config(optimizer=OPTIONS)), Rates(RATE, DECAY)

    @jax.jit
    def updated(gradients, state, params, finite):
        return optimizer.update(gradients, state, params, finite=finite, rates=now)

    return updated


def first_state(params):
    return optimizers.make(Config(optimizer=OPTIONS)).init(params)


def test_updates_equal_those_of_numpy_and_of_optax(updated):
    params = trees.nested(random_arrays(0))
    axes = {name: MuonDimensionNumbers(1, 2) if name in KERNELS else None for name in SHAPES}
    plain = muon(
        RATE, beta=0.8, muon_weight_dimension_numbers=trees.nested(axes), consistent_rms=0.2
    )
    adam = optax.adam(RATE, 0.7, 0.9, 0.01)
    of_others = [name for name in SHAPES if name not in KERNELS]
    states = [plain.init(params), adam.init({name: random_arrays(0)[name] for name in of_others})]
    state, averages = first_state(params), dict.fromkeys(KERNELS, 0.0)
    for step in (1, 2, 3):
        gradients = random_arrays(step)
        actual, state = updated(trees.nested(gradients), state, params, True)
        actual = trees.named_leaves(actual)
        from_optax, states[0] = plain.update(trees.nested(gradients), states[0], params)
        from_optax = trees.named_leaves(from_optax)
        from_adam, states[1] = adam.update({name: gradients[name] for name in of_others}, states[1])
        for name in KERNELS:
            averages[name] = 0.8 * averages[name] + 0.2 * gradients[name].astype(float)
            lookahead = 0.8 * averages[name] / (1 - 0.8 ** (step + 1))
            lookahead = lookahead + 0.2 * gradients[name] / (1 - 0.8**step)
            size = 0.2 * max(SHAPES[name][1:]) ** 0.5
            expected = np.stack([size * orthogonalised(layer) for layer in lookahead])
            decayed = -RATE * (expected + DECAY * random_arrays(0)[name])
            np.testing.assert_allclose(actual[name], decayed, rtol=1e-3, atol=1e-5)
            from_optax[name] = from_optax[name] - RATE * DECAY * random_arrays(0)[name]
            np.testing.assert_allclose(actual[name], from_optax[name], rtol=1e-3, atol=1e-5)
        for name in of_others:
            decay = 0 if name.endswith("bias") else RATE * DECAY * random_arrays(0)[name]
            np.testing.assert_allclose(actual[name], from_adam[name] - decay, rtol=1e-5, atol=1e-6)


def test_the_length_of_an_update_depends_on_the_sides_of_a_matrix_only(monkeypatch):
    """Kernels [5, 2, 3] have more layers than rows or columns. They are not orthogonalised here."""
    monkeypatch.setattr("xlj.optimizers.muon._orthogonalise", lambda axes, momentum: momentum)
    optimizer, kernels = direction(OPTIONS), np.arange(30, dtype=np.float32).reshape(5, 2, 3)
    params = trees.nested({"layers/attention/query/kernel": jnp.asarray(kernels)})
    updates, _ = optimizer.update(params, optimizer.init(params), params, finite=jnp.array(True))
    lookahead = (0.8 * 0.2 / (1 - 0.8**2) + 0.2 / (1 - 0.8)) * kernels
    expected = 0.2 * 3**0.5 * lookahead
    np.testing.assert_allclose(*jax.tree.leaves(updates), expected, rtol=1e-5)


def test_non_finite_gradients_change_no_state(updated):
    params = trees.nested(random_arrays(0))
    _, before = updated(trees.nested(random_arrays(1)), first_state(params), params, True)
    broken = jax.tree.map(lambda x: x.at[0].set(jnp.nan), jax.tree.map(jnp.asarray, params))
    _, after = updated(broken, before, params, False)
    assert all(
        (a == b).all() for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    )
    assert isinstance(before[0], MuonState) and int(before[0].steps) == 1


@pytest.mark.parametrize("fsdp", [2, 4])
def test_sharded_updates_equal_those_of_one_device(updated, fsdp):
    """Three kernels of two layers: each of two devices orthogonalises one layer. Each kernel is
    sent once and returned once."""
    mesh = meshes.make_mesh(Config(mesh=Mesh(fsdp=fsdp)), jax.devices()[:4])
    params, gradients = (trees.nested(random_arrays(seed)) for seed in (0, 1))
    before = first_state(params)
    expected, next_state = updated(gradients, before, params, True)
    expected = jax.tree.map(jnp.add, params, expected)
    shardings = trees.shardings(params, mesh, STORED)
    state_shardings = optimizers.state_shardings(before, params, shardings, trees.replicated(mesh))
    optimizer, now = optimizers.make(Config(optimizer=OPTIONS)), Rates(RATE, DECAY)

    def update(gradients, state, params):
        finite = jnp.array(True)
        updates, state = optimizer.update(gradients, state, params, finite=finite, rates=now)
        return jax.tree.map(jnp.add, params, updates), state

    step = jax.jit(devices.on_mesh(mesh, update), out_shardings=(shardings, state_shardings))
    arguments = jax.device_put((gradients, before, params), (shardings, state_shardings, shardings))
    program = step.lower(*arguments).compile()
    chex.assert_trees_all_close(program(*arguments), (expected, next_state), rtol=1e-4, atol=1e-6)
    collectives = re.findall(
        r" (all-\w+(?:-\w+)?|reduce-scatter|collective-permute)\(", program.as_text()
    )
    assert collectives == ["all-to-all"] * 6


def test_moments_have_the_sharding_of_their_parameters(every):
    every.optimizer.name, every.mesh.fsdp = "muon", 4
    config = parse(every)
    mesh = meshes.make_mesh(config)
    abstract = states.abstract(config, memory.expected_sizes(config).corpus, mesh)
    of_muon, params = abstract.optimizer[0], trees.named_leaves(abstract.params)
    momenta = [trees.named_leaves(tree) for tree in (of_muon.mu, of_muon.others.mu)]
    assert set(momenta[0]) | set(momenta[1]) == set(params) and not set(momenta[0]) & set(
        momenta[1]
    )
    assert {name for name in params if name.endswith("/kernel") and "layers/" in name} == {
        name for name in {*momenta[0], *momenta[1]} if re.fullmatch(".*layers/.*/kernel", name)
    }
    for moments in (*momenta, trees.named_leaves(of_muon.others.nu)):
        for name, moment in moments.items():
            assert moment.sharding == params[name].sharding, name
    kernels = {name.removeprefix("generator/") for name in momenta[0]}
    parts = [f"attention/{name}" for name in ("query", "key", "value", "output")]
    parts += ["feed_forward/inner", "feed_forward/outer"]
    assert kernels == {f"layers/{part}/kernel" for part in parts}


def parameters_of(recipe):
    """Returns the names of the parameters of a recipe."""
    config = parse(importlib.import_module(recipe).get_config("tiny")).for_platform("cpu")
    sizes = memory.expected_sizes(config)
    return trees.named_leaves(jax.eval_shape(lambda: states.init(config, sizes.corpus, 0).params))


@pytest.mark.parametrize("recipe", sorted(file.stem for file in RECIPES.glob("*.py")))
def test_a_rule_matches_each_parameter_of_each_recipe(recipe, monkeypatch):
    monkeypatch.syspath_prepend(str(RECIPES))
    for name in parameters_of(recipe):
        rule_of(name)  # raises an error if no rule does


def test_heads_of_tasks_are_updated_by_adamw():
    assert all(rule_of(f"{head}/dense/kernel") is None for head in TASKS)


def test_a_parameter_without_a_rule_is_an_error_that_names_it():
    params = trees.nested(random_arrays(0) | {"layers/mixer/kernel": np.zeros((2, 4, 4))})
    with pytest.raises(ConfigError, match="no rule .* matches the parameter layers/mixer/kernel,"):
        first_state(params)
