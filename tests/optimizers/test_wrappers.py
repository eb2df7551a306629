"""Gradients above the limit of the global norm are scaled down to it.

The moving average of parameters is a weighted mean of their values after each step.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.optimizers.wrappers import clip, update_average


@pytest.mark.parametrize("limit, factor", [(0.0, 1), (0.125, 0.25), (0.5, 1), (0.75, 1), (4.0, 1)])
def test_gradients_are_scaled_only_if_their_norm_exceeds_the_limit(limit, factor):
    """The global norm of the gradients is 0.5."""
    gradients = {"word": np.float32([[0.3, 0.0]]), "norm": {"bias": np.float32([0.0, -0.4])}}
    clipped, norm = clip(jax.tree.map(jnp.asarray, gradients), limit)
    np.testing.assert_allclose(norm, 0.5, rtol=1e-6)
    np.testing.assert_allclose(clipped["word"], factor * gradients["word"], rtol=1e-6)
    np.testing.assert_allclose(clipped["norm"]["bias"], factor * gradients["norm"]["bias"], 1e-6)


def test_gradients_of_zeros_stay_zeros():
    clipped, norm = clip({"word": jnp.zeros(3)}, 1.0)
    assert float(norm) == 0 and clipped["word"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("beta", [0.7, 0.999])
def test_the_weight_of_a_value_is_the_decay_to_the_power_of_its_age(beta):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(9, 3)).astype(np.float32)
    average, seen = {"w": jnp.full(3, 100.0), "same": jnp.full(3, 0.1)}, []
    step = jax.jit(update_average, static_argnums=2)
    for number, value in enumerate(values):
        finite = number not in (0, 4)  # steps 0 and 4 must not change the average
        params = {"w": jnp.asarray(value) if finite else jnp.nan, "same": jnp.full(3, 0.1)}
        average = step(average, params, beta, jnp.int32(len(seen)), jnp.array(finite))
        seen += [value] if finite else []
        weights = beta ** np.arange(len(seen))[::-1]
        expected = np.average(seen, axis=0, weights=weights) if seen else np.full(3, 100.0)
        np.testing.assert_allclose(average["w"], expected, rtol=1e-4, atol=2e-5)
        assert (average["same"] == np.float32(0.1)).all()  # to the bit


def test_there_is_no_average_without_a_decay():
    assert update_average({}, {"w": jnp.zeros(3)}, 0.0, jnp.int32(0), jnp.array(True)) == {}
