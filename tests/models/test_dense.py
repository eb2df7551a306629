"""Linear layers: results, gradients and the arrays saved for the backward pass.

Also activations and their gradients equal those of JAX.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import Model
from xlj.models.block import FeedForward
from xlj.models.dense import Dense, geglu, gelu, linear, matmul, swiglu
from xlj.sharding import devices

MODEL = Model(layers=1, hidden=8, heads=2, intermediate=24, positions=10)


def feed_forward(platform, dtype, monkeypatch):
    """Returns output, gradients, and sizes of the arrays saved between the passes."""
    monkeypatch.setattr(devices, "platform", lambda: platform)
    layer = FeedForward(dataclasses.replace(MODEL, dtype=dtype))
    x = 2 * jax.random.normal(jax.random.key(0), (3, 5, 8))
    params = layer.init(jax.random.key(1), x, None)
    params = jax.tree.map(lambda p: p + jax.random.normal(jax.random.key(2), p.shape), params)
    output, backward = jax.vjp(lambda params, x: layer.apply(params, x, None), params, x)
    weights = jax.random.normal(jax.random.key(3), output.shape).astype(output.dtype)
    saved = sorted(leaf.shape for leaf in jax.tree.leaves(backward) if leaf.ndim == 3)
    return output, backward(weights), saved


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", 0.03)])
def test_a_gelu_is_recomputed_in_the_backward_pass_except_on_cpus(
    platform, dtype, tolerance, monkeypatch
):
    output, gradients, saved = feed_forward(platform, dtype, monkeypatch)
    expected, expected_gradients, saved_on_cpu = feed_forward("cpu", "float32", monkeypatch)
    assert output.dtype == jnp.dtype(dtype)
    assert [shape[-1] for shape in saved] == [8, 24] and len(saved_on_cpu) > 2
    actual, expected = ((output, gradients), (expected, expected_gradients))
    largest = jax.tree.map(lambda x: jnp.abs(x).max(), expected)
    scaled = (
        jax.tree.map(lambda x, most: x.astype(jnp.float32) / most, tree, largest)
        for tree in (actual, expected)
    )
    chex.assert_trees_all_close(*scaled, rtol=0, atol=tolerance)


@pytest.mark.parametrize("activation, width", [(gelu, 24), (geglu, 12), (swiglu, 12)])
def test_cpus_save_the_output_of_a_plain_gelu(activation, width):
    """A gated activation is recomputed on CPUs too: only its input [2, 5, 24] is saved."""
    x, kernel = jnp.ones((2, 5, 24)), jnp.ones((width, 8))
    _, backward = jax.vjp(lambda x, k: matmul(x, k, jnp.dtype("float32"), activation), x, kernel)
    saved = sorted(leaf.shape for leaf in jax.tree.leaves(backward) if leaf.ndim == 3)
    assert saved == [(2, 5, 24)] * (3 if activation is gelu else 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("activation", [gelu, None])
def test_on_gpus_the_gradient_of_a_bias_is_a_matrix_product(activation, dtype, monkeypatch):
    """The gradients of both biases equal those on other platforms, without a sum over vectors."""
    dtype = jnp.dtype(dtype)
    rng = np.random.default_rng(0)
    x, kernel, bias, shift, weights = (
        jnp.asarray(rng.normal(size=size), jnp.float32)
        for size in ((3, 5, 8), (8, 6), 6, 8, (3, 5, 6))
    )

    def gradients(platform):
        monkeypatch.setattr(devices, "platform", lambda: platform)

        def total(x, kernel, bias, shift):
            y = linear(x.astype(dtype), kernel, bias, dtype, dtype, activation, shift)
            return (y * weights.astype(dtype)).astype(jnp.float32).sum()

        gradient = jax.grad(total, (0, 1, 2, 3))
        sums = str(jax.make_jaxpr(gradient)(x, kernel, bias, shift)).count("reduce_sum")
        return gradient(x, kernel, bias, shift), sums

    (actual, sums), (expected, sums_on_tpu) = gradients("gpu"), gradients("tpu")
    assert sums == 1 < sums_on_tpu  # the sum of `total` itself
    for one, other in zip(actual, expected, strict=True):
        largest = np.abs(other).max() or 1
        np.testing.assert_allclose(
            one, other, atol=(1e-6 if dtype.itemsize == 4 else 0.02) * largest
        )


@pytest.mark.parametrize("platform", ["tpu", "gpu"])
@pytest.mark.parametrize("activation", [gelu, None])
def test_recomputed_values_are_protected_by_a_barrier(activation, platform, monkeypatch):
    """Without a barrier, XLA merges equal computations and saves the values of the forward pass.
    (XLA for CPUs removes barriers early, so its programs cannot be tested.)

    GPUs have two more barriers: one rounds the output, and one makes later operations wait for the
    gradient of the kernel."""
    monkeypatch.setattr(devices, "platform", lambda: platform)
    x, kernel, float32 = jnp.zeros((1, 5, 8)), jnp.zeros((8, 8)), jnp.dtype("float32")

    def layer(kernel, x):
        return linear(x, kernel, jnp.zeros(8), float32, float32, activation)

    passes = jax.jit(lambda kernel, x: jax.vjp(layer, kernel, x)[1](x))
    count = passes.lower(kernel, x).as_text().count("optimization_barrier")
    assert count == (activation is gelu) + 2 * (platform == "gpu")


def test_a_result_is_rounded_after_the_bias_is_added():
    x, bias = jnp.ones((1, 1)), jnp.array([1 / 256 + 1 / 1024])
    params = {"params": {"kernel": jnp.ones((1, 1)), "bias": bias}}
    bfloat16 = jnp.dtype("bfloat16")
    narrow = Dense(1, bfloat16, 0.02, bfloat16).apply(params, x)
    assert narrow.dtype == bfloat16 and float(narrow[0, 0]) == 1 + 1 / 128
    assert float(Dense(1, bfloat16, 0.02).apply(params, x)[0, 0]) == 1 + float(bias[0])


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_the_inner_bias_is_added_inside_the_activation(platform, monkeypatch):
    """The inner matrix product is rounded before its bias is added; the sum is not rounded."""
    monkeypatch.setattr(devices, "platform", lambda: platform)
    bfloat16 = jnp.dtype("bfloat16")
    layer = FeedForward(dataclasses.replace(MODEL, dtype="bfloat16", init_std=0.5))
    x = jax.random.normal(jax.random.key(0), (2, 3, 8))
    params = layer.init(jax.random.key(1), x, None)["params"]
    inner, outer = params["inner"], params["outer"]
    inner["bias"], outer["bias"] = (
        jax.random.normal(jax.random.key(2), part["bias"].shape) for part in (inner, outer)
    )
    product = linear(x, inner["kernel"], None, bfloat16, bfloat16)
    assert product.shape == (2, 3, 24) and product.dtype == bfloat16
    exact = x.astype(bfloat16).astype(jnp.float32) @ inner["kernel"].astype(bfloat16).astype(
        jnp.float32
    )
    np.testing.assert_allclose(product.astype(jnp.float32), exact, rtol=2**-8, atol=1e-5)
    summed = product.astype(jnp.float32) + inner["bias"]
    active = gelu(summed, jnp.dtype("float32" if platform == "gpu" else "bfloat16"))
    np.testing.assert_array_equal(
        layer.apply({"params": params}, x, None),
        linear(active, outer["kernel"], outer["bias"], bfloat16, bfloat16),
    )


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
