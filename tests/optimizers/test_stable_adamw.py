"""StableAdamW against its formula in NumPy, for tensors and for each layer of stacked tensors."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from references.optimizers import StableAdamW

from xlj import optimizers
from xlj.config import Config, ConfigError, Optimizer, Train, parse
from xlj.sharding import meshes, trees
from xlj.training.schedule import Schedule

SHAPES = {
    "embeddings/word": (8, 4),
    "layers/attention/query/kernel": (2, 4, 4),
    "layers/attention/query/bias": (2, 4),
    "final_norm/scale": (4,),
    "position_bias/table": (4, 2),
}
OPTIONS = {"name": "stable_adamw", "b1": 0.7, "b2": 0.9, "epsilon": 0.01, "learning_rate": 0.25}
OPTIONS |= {"weight_decay": 0.5, "schedule": "wsd", "decay_steps": 3, "warmup_steps": 2}
RATES = [0.125, 0.25, 0.25, 0.25, 0.25 * 2 / 3, 0.25 / 3]
SIZES = [0.1, 1.0, 5.0, 0.02, 30.0, 0.5]
"""Scales of the gradients. They rise and fall, so that the root mean square is above and below
1."""


def random_arrays(rng, size=1.0):
    return {name: size * rng.normal(size=shape) for name, shape in SHAPES.items()}


def on_devices(arrays, place=lambda name, array: jnp.asarray(array, jnp.float32)):
    return trees.nested({name: place(name, array) for name, array in arrays.items()})


def check_updates(decoupling="partly", place=None, **more):
    """Compares six updates with the formula, and returns the last parameters and state."""
    config = Config(
        optimizer=Optimizer(**OPTIONS, decoupling=decoupling, **more), train=Train(steps=6)
    )
    factor = config.optimizer.layer_decay
    factors_of_layers = {"embeddings": [factor**3], "position_bias": [factor**3]}
    factors_of_layers |= {"layers": [factor**2, factor], "final_norm": [1.0]}
    optimizer, rng = optimizers.make(config), np.random.default_rng(0)
    plain, places = random_arrays(rng), {"place": place} if place else {}
    params = on_devices(plain, **places)
    state = jax.jit(optimizer.init)(params)
    references = {name: {} for name in SHAPES}
    dampings = []

    @jax.jit
    def updated(params, state, gradients, finite, now):
        updates, state = optimizer.update(gradients, state, params, finite=finite, rates=now)
        return jax.tree.map(jnp.add, params, updates), state

    for step, size in enumerate(SIZES):
        gradients, now = random_arrays(rng, size), Schedule(config, None).at(step).rates
        if step == 3:  # must not change the state; its updates are not applied
            broken = on_devices(gradients | {"embeddings/word": np.full((8, 4), np.nan)}, **places)
            _, same = updated(params, state, broken, jnp.array(False), now)
            chex.assert_trees_all_equal(same, state)
        params, state = updated(params, state, on_devices(gradients, **places), True, now)
        for name, whole in plain.items():
            is_stacked = name.startswith("layers/")
            decays = name in ("embeddings/word", "layers/attention/query/kernel")
            new = []
            for layer, part in enumerate(whole if is_stacked else [whole]):
                reference = references[name].setdefault(layer, StableAdamW(0.7, 0.9, 0.01))
                gradient = gradients[name][layer] if is_stacked else gradients[name]
                rate = RATES[step] * factors_of_layers[name.partition("/")[0]][layer]
                share = 1 / 0.25 if decoupling == "fully" else 1
                new.append(reference.update(part, gradient, rate, 0.5 * decays, share))
                dampings.append(reference.damping)
            plain[name] = np.stack(new) if is_stacked else new[0]
        chex.assert_trees_all_close(trees.named_leaves(params), plain, rtol=2e-5, atol=2e-6)
    assert 0.2 < np.mean(np.array(dampings) > 1) < 0.8 and max(dampings) > 1.5
    return params, state


def test_updates_equal_the_formula():
    check_updates()


def test_fully_decoupled_decay_and_layer_decay_equal_the_formula():
    check_updates("fully", layer_decay=0.5)


def test_sharded_updates_equal_the_formula():
    """The mean over a tensor includes its slices on all devices."""
    mesh = meshes.make_mesh(Config(), jax.devices()[:4])
    axes = {"embeddings/word": (None, "replica")}
    axes["layers/attention/query/kernel"] = (None, "replica", None)

    def place(name, array):
        sharding = NamedSharding(mesh, PartitionSpec(*axes.get(name, ())))
        return jax.device_put(jnp.asarray(array, jnp.float32), sharding)

    _, state = check_updates(place=place)
    kernel = state[0].nu["layers"]["attention"]["query"]["kernel"]
    assert not kernel.sharding.is_fully_replicated


def test_frozen_parameters_never_change():
    options = Optimizer(**OPTIONS, rate_multipliers=(".*/kernel=0", ".*=0.5"))
    optimizer, rng = optimizers.make(Config(optimizer=options)), np.random.default_rng(0)
    params, gradients = on_devices(random_arrays(rng)), on_devices(random_arrays(rng))
    now = Schedule(Config(optimizer=options), None).at(3).rates

    @jax.jit
    def updated(gradients, params):
        state = optimizer.init(params)
        return optimizer.update(gradients, state, params, finite=jnp.array(True), rates=now)

    updates, _ = updated(gradients, params)
    for name, update in trees.named_leaves(updates).items():
        assert (update == 0).all() == name.endswith("kernel"), name


def test_full_decoupling_needs_a_learning_rate(tiny):
    tiny.optimizer.decoupling, tiny.optimizer.learning_rate = "fully", 0.0
    with pytest.raises(ConfigError, match="optimizer.decoupling=fully divides by"):
        parse(tiny)
