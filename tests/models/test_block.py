"""The residual sum and its norm: the kernel against plain JAX, and when the kernel is used."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding

from xlj.config import Model
from xlj.models import block, dropout, encoder, fused_norm
from xlj.models.norms import norm
from xlj.models.segments import segments
from xlj.sharding import devices

MODEL = Model(layers=2, hidden=48, heads=2, intermediate=64, positions=66, dtype="bfloat16")


@pytest.mark.parametrize(
    "dtype, rate, count", [("float32", 0.3, 1), ("bfloat16", 0.3, 4), ("bfloat16", 0.0, 1)]
)
def test_the_kernel_equals_plain_jax(dtype, rate, count):
    """The width is not a power of 2, and both outputs have gradients. On a machine with one GPU,
    the mesh of four devices consists of CPUs."""
    rng = np.random.default_rng(0)
    available = jax.devices() if len(jax.devices()) >= count else jax.devices("cpu")
    mesh_devices = np.array(available[:count]).reshape(-1, min(2, count))
    interpret = available[0].platform != "gpu"
    mesh = Mesh(mesh_devices, devices.AXES, axis_types=(AxisType.Auto,) * 2)

    def normal(*shape, dtype=jnp.float32):
        spec = devices.ROWS if len(shape) > 1 else devices.REPLICATED
        return jax.device_put(jnp.asarray(rng.normal(size=shape), dtype), NamedSharding(mesh, spec))

    shape = (4, 2 * fused_norm.MULTIPLE, 48)
    x, update = normal(*shape), normal(*shape, dtype=dtype)
    scale, bias = normal(48), normal(48)
    first, second = normal(*shape), normal(*shape)
    seeds = dropout.row_seeds(jax.random.split(jax.random.key(0), 4), 2, 3)

    def kernel(*arrays):
        options = fused_norm.Options(1e-3, rate, jnp.dtype(dtype), interpret)
        return fused_norm.add_norm(options, *arrays, seeds)

    def plain(x, update, scale, bias):
        total = x + dropout.drop(update.astype(jnp.float32), seeds, rate)
        y = norm(total, scale, bias, dataclasses.replace(MODEL, layer_norm_epsilon=1e-3))
        return y, y.astype(dtype)

    def with_gradients(function):
        def total(*arrays):
            wide, narrow = function(*arrays)
            return (wide * first + narrow.astype(jnp.float32) * second).sum(), (wide, narrow)

        whole = devices.on_mesh(mesh, jax.value_and_grad(total, (0, 1, 2, 3), has_aux=True))
        alone = jax.jit(devices.on_mesh(mesh, function))(x, update, scale, bias)
        (_, outputs), gradients = jax.jit(whole)(x, update, scale, bias)
        return *alone, *outputs, *gradients

    for a, b in zip(with_gradients(kernel), with_gradients(plain), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        tolerance = 0.01 if a.dtype == jnp.bfloat16 else 1e-5
        a, b = (np.asarray(x, np.float64) for x in (a, b))
        assert np.abs(a - b).max() < tolerance * np.abs(b).max()


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"remat": "products"}, {"scan_layers": False}])
def test_an_encoder_with_kernels_equals_one_without(options, monkeypatch):
    """In bfloat16, with dropout and interpreted kernels: results differ by rounding only."""
    model = dataclasses.replace(MODEL, attention="dense", **options)
    tokens = np.random.default_rng(0).integers(4, 50, (2, 64))
    tokens[:, [0, 30]] = 0
    layout = segments(jnp.asarray(tokens))
    batch = encoder.Inputs(jnp.asarray(tokens), layout.position, layout.segment, layout.segment)
    params = encoder.init(jax.random.key(0), model, 50, 1)
    keys = jax.random.split(jax.random.key(1), 2)

    # Not squares as the loss: the sum of squares of a norm's output is constant.
    weights = jax.random.normal(jax.random.key(2), (2, 64, 48))

    def outputs(model):
        def total(params):
            return (encoder.apply(params, model, batch, keys) * weights).sum()

        return jax.flatten_util.ravel_pytree(jax.jit(jax.grad(total))(params))[0]

    plain = outputs(model)
    monkeypatch.setattr(block, "_is_fused", lambda model, length: True)
    fused = outputs(dataclasses.replace(model, attention="triton"))
    exact = outputs(dataclasses.replace(model, dtype="float32", attention="dense"))
    fused_error, plain_error = (float(jnp.linalg.norm(x - exact)) for x in (fused, plain))
    assert fused_error < 1.5 * plain_error < 0.2 * float(jnp.linalg.norm(exact))


def test_the_kernel_is_used_only_for_bfloat16_on_gpus(monkeypatch):
    def is_fused(platform, **options):
        monkeypatch.setattr(devices, "platform", lambda: platform)
        x = jnp.zeros((1, options.pop("length", 64), 48))
        return block.stream_of(x, dataclasses.replace(MODEL, **options)).narrow is not None

    assert is_fused("gpu") and not is_fused("tpu") and not is_fused("cpu")
    assert not is_fused("gpu", dtype="float32") and not is_fused("gpu", norm="pre")
    assert not is_fused("gpu", norm_type="unbiased")
    assert not is_fused("gpu", length=60)


def test_sub_layers_read_the_narrow_stream_if_there_is_one():
    wide, narrow = jnp.zeros((1, 1, 2)), jnp.zeros((1, 1, 2), jnp.bfloat16)
    assert block.Stream(wide, narrow).read is narrow and block.Stream(wide, None).read is wide


def test_evaluation_has_no_dropout():
    model = dataclasses.replace(MODEL, dropout=0.5)
    x, update = np.random.default_rng(0).normal(size=(2, 1, fused_norm.MULTIPLE, 48))
    x, update = jnp.asarray(x, jnp.float32), jnp.asarray(update, jnp.bfloat16)
    module, context = block.PostNorm(model, 2, 0.5), block.Context(None, None, None, 1)

    def added(stream):
        params = {"params": {"scale": jnp.ones(48), "bias": jnp.zeros(48)}}
        return module.apply(params, stream, lambda x, _: update, context)

    expected = added(block.Stream(x, None))
    actual = added(block.Stream(x, x.astype(jnp.bfloat16)))
    np.testing.assert_allclose(actual.wide, expected.wide, atol=1e-5)
    np.testing.assert_array_equal(actual.narrow, actual.wide.astype(jnp.bfloat16))


class Scaled(nn.Module):
    """A sub-layer that is not part of xlj."""

    factor: float

    @nn.compact
    def __call__(self, x, context):
        kernel = self.param("kernel", nn.initializers.ones, (x.shape[-1],))
        return self.factor * context.layer * x.astype(jnp.float32) * kernel


@pytest.mark.parametrize("order", block.RESIDUALS)
def test_a_block_uses_the_sub_layers_passed_to_it(order):
    """Norms come before or after sub-layers; parameters have the names of the fields."""
    model = dataclasses.replace(MODEL, hidden=6, norm=order, layer_norm_epsilon=1e-3)
    rng = np.random.default_rng(0)
    residual = functools.partial(block.RESIDUALS[order], model)
    module = block.Block(Scaled(0.5), residual(2, 0.0), Scaled(-2.0), residual(3, 0.0))
    stream = block.Stream(jnp.asarray(rng.normal(size=(2, 3, 6)), jnp.float32), None)
    context = block.Context(None, None, None, 3)
    params = module.init(jax.random.key(0), stream, context)["params"]
    norms = {"scale", "bias"}
    assert {name: set(part) for name, part in params.items()} == {
        "attention": {"kernel"}, "attention_norm": norms,
        "feed_forward": {"kernel"}, "feed_forward_norm": norms,
    }  # fmt: skip
    params = jax.tree.map(lambda p: rng.normal(size=p.shape).astype(np.float32), params)

    def normed(x, name):
        part = params[f"{name}_norm"]
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
        return centred / deviation * part["scale"] + part["bias"]

    x = np.asarray(stream.wide, np.float64)
    for name, factor in (("attention", 0.5), ("feed_forward", -2.0)):
        kernel = 3 * factor * params[name]["kernel"]
        x = x + normed(x, name) * kernel if order != "post" else normed(x + x * kernel, name)
    actual = module.apply({"params": params}, stream, context)
    assert actual.narrow is None
    np.testing.assert_allclose(actual.wide, x, rtol=1e-4, atol=1e-4)
