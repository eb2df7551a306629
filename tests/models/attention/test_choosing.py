"""Which implementation `model.attention` chooses, and what each one states."""

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from jax._src.cudnn import fused_attention_stablehlo as library
from jax.extend.core import jaxprs_in_params

from xlj.config import ConfigError, Model, default, parse
from xlj.config.sections import ATTENTION
from xlj.models import encoder
from xlj.models.attention import blocks, choosing, interface, reference
from xlj.models.attention.choosing import IMPLEMENTATIONS, choose
from xlj.models.attention.interface import Mask, Operands, Request
from xlj.sharding import devices


def request(platform="gpu", dtype="bfloat16", length=512, window=None, **options):
    return Request(platform, dtype, length, 12, 64, window, **options)


def test_the_config_has_the_names_of_all_implementations_in_their_order():
    assert ("auto", *IMPLEMENTATIONS) == ATTENTION


@pytest.mark.parametrize(
    "expected, changes",
    [
        ("triton", {}),
        ("triton", {"length": 8}),
        ("triton", {"window": 64, "has_bias": True, "has_dropout": True}),
        ("dense", {"dtype": "float32"}),  # the measured length
        ("triton", {"dtype": "float32", "length": 513}),
        ("blocks", {"dtype": "float32", "window": 64}),
        ("dense", {"dtype": "float32", "window": 64, "has_bias": True}),
        ("tpu", {"platform": "tpu"}),
        ("tpu", {"platform": "tpu", "dtype": "float32", "window": 64}),
        ("dense", {"platform": "cpu"}),
        ("dense", {"platform": "cpu", "length": 8192}),
        ("dense", {"platform": "cpu", "window": 64, "length": 255}),
        ("blocks", {"platform": "cpu", "window": 64, "length": 256}),
        ("dense", {"platform": "cpu", "window": 64, "has_bias": True}),
    ],
)
def test_auto_takes_the_fastest_implementation(expected, changes, monkeypatch):
    choice_request = request(**changes)
    monkeypatch.setattr(devices, "platform", lambda: choice_request.platform)
    assert choose("auto", choice_request).name == expected


@pytest.mark.parametrize(
    "expected, changes",
    [
        ("dense", {"length": 1024}),
        ("chunks", {"length": 1025}),
        ("chunks", {"length": 8192, "dtype": "float32", "has_bias": True, "window": 64}),
        ("blocks", {"length": 8192, "window": 64}),
    ],
)
def test_without_kernels_long_rows_have_no_scores_of_all_pairs(expected, changes, monkeypatch):
    monkeypatch.setattr(devices, "platform", lambda: "gpu")
    monkeypatch.setattr(devices, "compute_capability", lambda: 7.5)
    assert choose("auto", request(**changes)).name == expected


def test_named_implementations_are_asked_in_order():
    """A named implementation is used even where `auto` prefers another one."""
    on_cpu = request("cpu", "float32")
    assert choose("triton", on_cpu).name == "triton"
    assert choose("cudnn,blocks,chunks,dense", on_cpu).name == "chunks"
    choice = choose("cudnn,auto", on_cpu)
    assert choice.name == "dense"
    assert choose("auto", on_cpu).refusals["cudnn"] == "runs on GPUs"
    assert choice.refusals["blocks"] == "no local window"
    assert choice.refusals["tpu"] == "kernels for TPUs"
    expected = r"model.attention=cudnn,blocks cannot compute full attention: not cudnn: runs on"
    with pytest.raises(ConfigError, match=expected):
        choose("cudnn,blocks", on_cpu)
    with pytest.raises(ConfigError, match="cannot compute local attention"):
        choose("cudnn", on_cpu._replace(window=3))


def test_the_report_has_a_line_for_each_kind_of_layers_and_reasons():
    model = Model(local_attention=128, dtype="float32", attention="blocks,dense")
    lines = choosing.report(model, [512, 64, 128, 512])
    refused = "dense in float32 (not blocks: no local window)"
    assert lines == [
        # A window of 64 tokens to each side covers rows of 64 tokens.
        f"attention of full layers, rows of 64 and 128 and 512 tokens: {refused}".replace(
            " window",
            "\n    window",  # lines have at most 100 characters
        ),
        f"attention of local layers, rows of 64 tokens: {refused}",
        "attention of local layers, rows of 128 and 512 tokens: blocks in float32",
    ]


def test_unknown_names_are_refused_before_any_work():
    config = default()
    config.data.mono, config.data.languages = "phrasebook:{language}", "en"
    config.model.attention = "triton,dens"
    with pytest.raises(ConfigError, match="model.attention=triton,dens: .*; did you mean dense"):
        parse(config)
    config.model.attention = "no_such_module:attend"
    with pytest.raises(ConfigError, match="model.attention=no_such_module:attend: No module"):
        parse(config)


@pytest.fixture
def on_hopper(monkeypatch):
    """Replaces the probes with which JAX finds out what cuDNN and the GPU can do."""
    probes = SimpleNamespace(cudnn=91_000, capability="9.0")

    def version():
        if probes.cudnn is None:
            raise RuntimeError("cuDNN is not detected.")
        return probes.cudnn

    monkeypatch.setattr(library, "check_cudnn_version", version)
    monkeypatch.setattr(
        library, "check_compute_capability", lambda least: probes.capability >= least
    )
    monkeypatch.setattr(
        library, "is_cuda_compute_capability_equal", lambda other: probes.capability == other
    )
    return probes


@pytest.mark.parametrize(
    "reason, changes, probes",
    [
        (None, {}, {}),
        (None, {"window": 64}, {}),
        ("runs on GPUs", {"platform": "tpu"}, {}),
        ("takes no position bias", {"has_bias": True}, {}),
        ("has no dropout", {"has_dropout": True}, {}),
        ("Unsupported dtype", {"dtype": "float32"}, {}),
        ("head dim must be <= 256 and a multiple of 8, but got 20", {"size": 20}, {}),
        ("head dim must be <= 128", {"size": 136}, {"capability": "8.0"}),
        ("Unsupported sequence length", {"length": 511}, {}),
        ("cuDNN is not detected", {}, {"cudnn": None}),
        ("requires cuDNN version >= 9.11", {}, {"capability": "10.3"}),
    ],
)
def test_cudnn_refuses_what_the_library_refuses(reason, changes, probes, on_hopper):
    vars(on_hopper).update(probes)
    actual = IMPLEMENTATIONS["cudnn"].why_not(request()._replace(**changes))
    assert actual is None if reason is None else reason in actual
    with_auto = choose("cudnn,dense", request()._replace(**changes)).name
    assert with_auto == ("cudnn" if reason is None else "dense")


def test_auto_does_not_use_cudnn(on_hopper, monkeypatch):
    monkeypatch.setattr(devices, "platform", lambda: "gpu")
    monkeypatch.setattr(devices, "compute_capability", lambda: 7.5)
    choice = choose("auto", request())
    assert choice.name == "dense" and choice.refusals["cudnn"] == "not measured on packed rows"


def products(jaxpr):
    """Counts the operations of a traced program: products, and what kernels state."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call":
            total += equation.params["cost_estimate"].flops
            continue
        if equation.primitive.name == "dot_general":
            (axes, _), _ = equation.params["dimension_numbers"]
            contracted = [equation.invars[0].aval.shape[axis] for axis in axes]
            total += 2 * equation.outvars[0].aval.size * jnp.prod(jnp.array(contracted)).item()
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += times * sum(map(products, jaxprs_in_params(equation.params)))
    return total


@pytest.mark.parametrize("window", [None, 64])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["triton", "tpu", "blocks", "chunks", "dense"])
def test_stated_operations_are_those_of_the_traced_program(name, bias, window):
    rows, length, heads, size = 3, 640, 2, 64
    asked = Request("cpu", "bfloat16", length, heads, size, window, has_bias=bias)
    implementation = IMPLEMENTATIONS[name]
    if implementation.why_not(asked) is not None:
        return
    x = jax.ShapeDtypeStruct((rows, length, heads, size), jnp.bfloat16)
    ids = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    block = implementation.bias_block(asked)
    count = interface.count_blocks(length, block)
    shape = (heads, 2 * count - 1, block, block)
    tiles = jax.ShapeDtypeStruct(shape, jnp.float32) if bias else None

    def total(query, key, value, tiles, ids):
        operands = Operands(query, key, value, Mask(ids, ids, window), tiles)
        return implementation.attend(operands).astype(jnp.float32).sum()

    numbers = (0, 1, 2, 3) if bias else (0, 1, 2)
    traced = jax.make_jaxpr(jax.grad(total, numbers))(x, x, x, tiles, ids)
    costs = implementation.costs(asked)
    assert products(traced.jaxpr) == rows * (costs.forward.operations + costs.backward.operations)
    assert costs.backward.bytes > costs.forward.bytes > 4 * 2 * length * heads * size - 1


def own_attention(query, key, value, mask):
    """Attention as an engineer might plug it in, by `jax.nn`."""
    visible = mask.of_queries(mask.query_segment_ids)
    output = jax.nn.dot_product_attention(query, key, value, mask=visible[:, None])
    return jnp.where(visible.any(-1)[:, :, None, None], output, 0)


def of_one_head(query, key, value, mask):
    return own_attention(query, key, value, mask)[:, :, :1]


def test_the_output_of_a_plugged_function_is_checked():
    x = jnp.zeros((1, 4, 2, 8))
    ids = jnp.zeros((1, 4), jnp.int32)
    chosen = choose(f"{__name__}:of_one_head", request("cpu", "float32")).implementation
    with pytest.raises(AssertionError, match=re.escape("float32 [1, 4, 2, 8]")):
        chosen.attend(Operands(x, x, x, Mask(ids, ids)))


def test_a_plugged_function_is_not_asked_for_a_bias_or_dropout():
    names = f"{__name__}:own_attention,dense"
    assert choose(names, request("cpu")).name == f"{__name__}:own_attention"
    assert "position bias" in choose(names, request("cpu", has_bias=True)).refusals[names[:-6]]
    assert "no dropout" in choose(names, request("cpu", has_dropout=True)).refusals[names[:-6]]


def test_full_and_local_layers_have_their_own_implementations(monkeypatch):
    """Attention of local layers would be slow, but right, with the choice of full layers."""
    used = []
    for kind in (blocks.LocalBlocks, reference.Dense):

        def attend(self, operands, kind=kind, attend=kind.attend):
            used.append((kind.__name__, operands.mask.window))
            return attend(self, operands)

        monkeypatch.setattr(kind, "attend", attend)
    model = Model(
        layers=2, hidden=8, heads=2, intermediate=8, absolute_positions=False, rotary_base=10.0,
        local_attention=8, full_attention_every=2, scan_layers=False,
    )  # fmt: skip
    ids = jnp.zeros((1, 256), jnp.int32)
    params = encoder.init(jax.random.key(0), model, 5, 1)
    used.clear()
    jax.eval_shape(lambda p: encoder.apply(p, model, encoder.Inputs(ids, ids, ids, ids)), params)
    assert used == [("Dense", None), ("LocalBlocks", 4)]


def kernel_products(jaxpr):
    """Yields (name, number of matrix products in the code) of each kernel."""
    for equation in jaxpr.eqns:
        inner = list(jaxprs_in_params(equation.params))
        if equation.primitive.name == "pallas_call":
            yield equation.params["name"], sum(map(count_dots, inner))
        else:
            for each in inner:
                yield from kernel_products(each)


def count_dots(jaxpr):
    inner = (each for e in jaxpr.eqns for each in jaxprs_in_params(e.params))
    own = sum(equation.primitive.name == "dot_general" for equation in jaxpr.eqns)
    return own + sum(map(count_dots, inner))


@pytest.mark.parametrize("name", ["triton", "tpu"])
def test_the_stated_products_are_those_of_the_kernels_code(name):
    """With heads of 128, a TPU kernel computes one head."""
    implementation = IMPLEMENTATIONS[name]
    x, ids = jnp.zeros((1, 128, 1, 128)), jnp.zeros((1, 128), jnp.int32)
    block = implementation.kernels.block(128, x.dtype)
    tiles = jnp.zeros((1, 2 * (128 // block) - 1, block, block))

    def total(x, tiles):
        return implementation.attend(Operands(x, x, x, Mask(ids, ids), tiles)).sum()

    counts = dict(kernel_products(jax.make_jaxpr(jax.grad(total, (0, 1)))(x, tiles).jaxpr))
    if name == "tpu":  # the sums of the outputs' products with their gradients do not count
        counts["attention_backward"] -= 1
    assert counts == implementation.kernels.PRODUCTS
