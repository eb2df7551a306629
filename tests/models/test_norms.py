"""Norms against their formulas, forward and backward, and the arrays saved between the passes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import Model
from xlj.models.norms import Norm, norm

MODEL = Model(hidden=8, heads=2, layer_norm_epsilon=1e-3)
WITH_BIAS = {"layer": True, "unbiased": False, "rms": False}


def plain(x, scale, bias, kind):
    """Computes a norm by the formula of its paper."""
    if kind == "rms":
        return x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-3) * scale
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    y = centred / jnp.sqrt(variance + 1e-3) * scale
    return y if bias is None else y + bias


def arrays(kind):
    x = 3 + 2 * jax.random.normal(jax.random.key(0), (3, 5, 8))
    scale, bias, weights = jax.random.normal(jax.random.key(1), (3, 8))
    return (x, scale, bias if WITH_BIAS[kind] else None), weights


@pytest.mark.parametrize("kind", WITH_BIAS)
def test_norms_and_their_gradients_equal_the_formulas(kind):
    """LayerNorm saves its input and two numbers per vector, RMSNorm one number."""
    model = dataclasses.replace(MODEL, norm_type=kind)
    inputs, weights = arrays(kind)

    def gradients(function):
        def total(*inputs):
            return (jnp.sin(function(*inputs)) * weights).sum()

        return function(*inputs), *jax.tree.leaves(jax.grad(total, (0, 1, 2))(*inputs))

    actual = gradients(lambda *inputs: norm(*inputs, model))
    expected = gradients(lambda *inputs: plain(*inputs, kind))
    assert len(actual) == len(expected) == 3 + WITH_BIAS[kind]
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    x, *parameters = inputs
    _, backward = jax.vjp(lambda x: norm(x, *parameters, model), x)
    saved = sum(leaf.size for leaf in jax.tree.leaves(backward))
    numbers = 15 if kind == "rms" else 30
    assert saved == x.size + numbers + 8 * (1 + WITH_BIAS[kind])


@pytest.mark.parametrize("kind", WITH_BIAS)
def test_a_module_has_the_parameters_that_its_type_reads(kind):
    model = dataclasses.replace(MODEL, norm_type=kind)
    (x, scale, bias), _ = arrays(kind)
    layer = {"scale": scale} | ({"bias": bias} if WITH_BIAS[kind] else {})
    assert Norm(model).init(jax.random.key(0), x)["params"].keys() == layer.keys()
    actual = Norm(model).apply({"params": layer}, x.astype(jnp.bfloat16))
    assert actual.dtype == jnp.float32
    expected = norm(x.astype(jnp.bfloat16).astype(jnp.float32), scale, bias, model)
    np.testing.assert_array_equal(actual, expected)


def test_rms_norm_is_rounded_before_its_scale():
    """As in EuroBERT's released code, values are rounded to the model's dtype before the scale."""
    model = dataclasses.replace(MODEL, norm_type="rms", dtype="bfloat16")
    (x, scale, _), _ = arrays("rms")
    rounded = plain(x, 1.0, None, "rms").astype(jnp.bfloat16).astype(jnp.float32)
    np.testing.assert_array_equal(norm(x, scale, None, model), rounded * scale)
