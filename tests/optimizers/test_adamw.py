"""AdamW equals optax's, except that non-finite gradients do not change its moments."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xlj import optimizers
from xlj.config import Config, Optimizer
from xlj.optimizers import Rates

RATE, DECAY = 0.25, 0.1
RATES = Rates(np.float32(RATE), np.float32(DECAY))


def adamw(**options):
    return optimizers.make(Config(optimizer=Optimizer(**options)))


def step_of(optimizer, gradients, state, params, finite=True):
    return optimizer.update(gradients, state, params, finite=jnp.array(finite), rates=RATES)


def test_updates_equal_those_of_optax(drawn):
    params = drawn(0)
    decayed = {"word": True, "norm": {"bias": False, "scale": False}}
    optax_optimizer = optax.adamw(RATE, 0.8, 0.95, 1e-3, weight_decay=DECAY, mask=decayed)
    xlj_optimizer = adamw(b1=0.8, b2=0.95, epsilon=1e-3)
    states = [optax_optimizer.init(params), xlj_optimizer.init(params)]
    for seed in (1, 2, 3):
        expected, states[0] = optax_optimizer.update(drawn(seed), states[0], params)
        actual, states[1] = step_of(xlj_optimizer, drawn(seed), states[1], params)
        chex.assert_trees_all_close(
            (actual, states[1][0]), (expected, states[0][0]), rtol=1e-5, atol=1e-7
        )


@pytest.mark.parametrize("steps", [0, 2])
def test_non_finite_gradients_do_not_change_moments_and_give_finite_updates(drawn, steps):
    optimizer, params = adamw(), drawn(0)
    state = optimizer.init(params)
    for seed in range(steps):
        _, state = step_of(optimizer, drawn(seed), state, params)
    broken = jax.tree.map(lambda x: x.at[0].set(jnp.nan), drawn(9))
    updates, after = step_of(optimizer, broken, state, params, finite=False)
    chex.assert_trees_all_equal(after, state)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(updates))
