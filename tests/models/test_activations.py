"""Activations and their gradients equal those of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.models.activations import gelu


def test_the_gelu_is_exact():
    x = jnp.linspace(-6, 6, 101)
    expected = jax.nn.gelu(x, approximate=False)
    np.testing.assert_allclose(gelu(x, x.dtype), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("bfloat16", 2**-8)])
def test_the_gradient_of_the_gelu_comes_from_its_output(dtype, tolerance):
    """Includes x = 0, where the gradient cannot divide by x."""
    x = jnp.array([*np.linspace(-9, 9, 181), 0.0, -0.0, 1e-38, -1e-20, 1e-20, 60.0, -60.0])
    y, backward = jax.vjp(lambda x: gelu(x, jnp.dtype(dtype)), x)
    assert y.dtype == jnp.dtype(dtype)
    assert sum(leaf.ndim for leaf in jax.tree.leaves(backward)) == 2
    (actual,) = backward(jnp.ones_like(y))
    expected = jax.vmap(jax.grad(lambda x: jax.nn.gelu(x, approximate=False)))(x)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
