"""AdamW guarded against gradients that are not finite; layer-wise decay of the learning rate."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import Model, Optimizer
from xlj.models import encoder
from xlj.training import optimizer


def test_each_layer_has_less_than_the_one_above_it():
    model = Model(layers=3, hidden=8, heads=2, intermediate=16, positions=10, position_bias="gated")
    params = encoder.init(jax.random.key(0), model, 20, 1)
    params["classification_head"] = {"output": {"kernel": jnp.ones((8, 2))}}
    ones = jax.tree.map(jnp.ones_like, params)
    scaled = optimizer.by_layer(ones, 0.5)
    for leaf in jax.tree.leaves(scaled["layers"]):
        for layer, factor in enumerate((1 / 8, 1 / 4, 1 / 2)):
            np.testing.assert_allclose(leaf[layer], factor)
    for part in ("embeddings", "position_bias"):
        assert all((leaf == 1 / 16).all() for leaf in jax.tree.leaves(scaled[part]))
    assert (scaled["classification_head"]["output"]["kernel"] == 1).all()
    assert optimizer.by_layer(ones, 1.0) is ones


def drawn(seed):
    """Parameters, or gradients of them, of which biases and scales do not decay."""
    rng = np.random.default_rng(seed)
    names = {"word": (7, 3), "norm": {"bias": (3,), "scale": (3,)}}
    return jax.tree.map(
        lambda shape: jnp.asarray(rng.normal(size=shape), jnp.float32),
        names,
        is_leaf=lambda leaf: isinstance(leaf, tuple),
    )


def test_guarded_updates_are_optaxs():
    options = Optimizer(b1=0.8, b2=0.95, epsilon=1e-3, weight_decay=0.1)
    params, plain = drawn(0), optimizer.transform(options)
    states = [plain.init(params)] * 2
    for seed in (1, 2, 3):
        wanted, states[0] = plain.update(drawn(seed), states[0], params)
        found, states[1] = optimizer.update(
            options, drawn(seed), states[1], params, jnp.array(True)
        )
        chex.assert_trees_all_close((found, states[1]), (wanted, states[0]), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("steps", [0, 2])
def test_what_is_not_finite_leaves_the_moments_and_gives_finite_updates(steps):
    options, params = Optimizer(), drawn(0)
    state = optimizer.transform(options).init(params)
    for seed in range(steps):
        _, state = optimizer.update(options, drawn(seed), state, params, jnp.array(True))
    broken = jax.tree.map(lambda x: x.at[0].set(jnp.nan), drawn(9))
    updates, after = optimizer.update(options, broken, state, params, jnp.array(False))
    chex.assert_trees_all_equal(after, state)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(updates))
