"""The moving average of parameters is a weighted mean of their values after each step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.optimizers.averaging import update_average


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
