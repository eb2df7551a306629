"""The encoder's gradient as lowered for GPUs and TPUs, which works without such a device.

Attention and norms are kernels in the program, and no array has an element for each pair of tokens.
"""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

from xlj.config import Model
from xlj.models import encoder
from xlj.models.attention import kernels, tpu, triton
from xlj.models.attention.interface import Mask, Operands
from xlj.sharding import devices

LENGTH = 384  # a multiple of every block; no other axis is as long
KERNELS = {
    "cuda": {"attention", "attention_of_query", "attention_of_key", "attention_of_bias"}
    | {"add_norm", "add_norm_backward"},
    "tpu": {"attention", "attention_backward"},
}


DEVICES = {
    "cuda": AbstractDevice("NVIDIA H100 80GB HBM3", num_cores=None, platform="gpu"),
    "tpu": AbstractDevice("TPU v5 lite", num_cores=1, platform="tpu"),
}


def lowered(target, shape=(1, 1), **options):
    types = (AxisType.Auto,) * 2
    mesh = AbstractMesh(shape, devices.AXES, types, abstract_device=DEVICES[target])
    options = {"hidden": 128, "dtype": "bfloat16"} | options
    model = Model(
        layers=2, heads=2, intermediate=192, positions=LENGTH + 2, dropout=0.1,
        attention_dropout=0.1, position_bias="gated", **options,
    )  # fmt: skip
    params = jax.eval_shape(lambda: encoder.init(jax.random.key(0), model, 50, 1))
    ids = jax.ShapeDtypeStruct((4, LENGTH), jnp.int32)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 4))

    def total(params, rows):
        ids, keys = rows
        inputs = encoder.Inputs(ids, ids, ids, ids)
        return jnp.square(encoder.apply(params, model, inputs, keys)).sum()

    with jax.sharding.use_abstract_mesh(mesh):
        gradient = devices.by_copy(jax.grad(total))
        traced = jax.jit(gradient).trace(params, (ids, keys))
        return traced.lower(lowering_platforms=(target,)).as_text()


@pytest.mark.parametrize("target", KERNELS)
def test_attention_and_norms_are_kernels(target):
    text = lowered(target)
    names = set(re.findall(r'name = "(\w+)"', text)) | set(
        re.findall(r'kernel_name = "(\w+)"', text)
    )
    assert names >= KERNELS[target]
    assert f"{LENGTH}x{LENGTH}x" not in text
    if target == "cuda":  # Triton takes powers of 2
        warps = re.findall(r"num_warps = (\d+)", text)
        assert set(warps) == {"4", "8"}
    if target == "tpu":  # the backward pass of long rows needs more than the compiler's default
        memory = re.findall(r"scoped_memory_configs[^]]*?size\\22: (\d+)", text)
        assert len(memory) == text.count("custom_call_config") and set(memory) == {str(100 << 20)}


@pytest.mark.parametrize("target", KERNELS)
@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2, 2)])
def test_attention_and_norms_are_kernels_on_a_mesh_too(target, shape):
    """On TPUs, no kernel may be inside an axis that XLA partitions automatically."""
    text = lowered(target, shape)
    assert all(name in text for name in KERNELS[target])


@pytest.mark.parametrize("target", KERNELS)
def test_attention_in_a_window_uses_the_same_kernels(target):
    """Kernels with a window can be lowered, so the mask of the window has no unsupported
    operation."""
    types = (AxisType.Auto,) * 2
    mesh = AbstractMesh((1, 1), devices.AXES, types, abstract_device=DEVICES[target])
    heads = jax.ShapeDtypeStruct((4, LENGTH, 2, 64), jnp.bfloat16)
    ids = jax.ShapeDtypeStruct((4, LENGTH), jnp.int32)
    fused = kernels.Fused({"cuda": triton, "tpu": tpu}[target])

    def text(window):
        def total(arrays, ids):
            return jnp.square(fused.attend(Operands(*arrays, Mask(ids, ids, window)))).sum()

        traced = jax.jit(jax.grad(total)).trace((heads, heads, heads), ids)
        return traced.lower(lowering_platforms=(target,)).as_text()

    with jax.sharding.use_abstract_mesh(mesh):
        narrow, whole = text(64), text(None)
    names = re.compile(r'name = "(attention\w*)')
    assert set(names.findall(narrow)) == {name + "_local" for name in names.findall(whole)}
    assert names.findall(narrow)
    assert narrow != whole and f"{LENGTH}x{LENGTH}x" not in narrow


def test_dense_attention_has_all_pairs():
    assert f"{LENGTH}x{LENGTH}x" in lowered("tpu", attention="dense")


@pytest.mark.parametrize(
    "hidden, dtype, stages",
    [(128, "bfloat16", 3), (512, "bfloat16", 3), (130, "float32", 3), (512, "float32", 2)],
)
def test_the_number_of_tiles_of_keys_that_are_loaded_at_a_time(hidden, dtype, stages):
    """Three tiles are loaded at a time if they fit into shared memory, otherwise two."""
    text = lowered("cuda", hidden=hidden, dtype=dtype, attention="triton")
    stages_of_kernels = re.findall(r'name = "(attention\w*)".*?num_stages = (\d)', text)
    attention = {name for name in KERNELS["cuda"] if name.startswith("attention")}
    assert set(stages_of_kernels) == {(name, str(stages)) for name in attention}
