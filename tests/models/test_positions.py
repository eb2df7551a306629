"""Rotary positions against complex numbers, and their invariances.

The relative position bias: its buckets, its gates, and the encoder with the bias.
"""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import Model, Optimizer
from xlj.models import encoder
from xlj.models.attention.layer import Attention
from xlj.models.block import Context
from xlj.models.positions import PositionBias, bias_tiles, buckets, rotate, rotations_of_layers
from xlj.models.positions import rotations as rotations_at
from xlj.models.segments import segments
from xlj.optimizers import multipliers
from xlj.sharding import trees

MODEL = Model(hidden=48, heads=4, rotary_base=100.0, rotary_factor=1.5, absolute_positions=False)


def plain_rotation(x, positions, base, factor):
    """Multiplies dimensions j and j + size / 2, as a complex number, with e^(i angle)."""
    half = x.shape[-1] // 2
    frequencies = [base ** (-2 * j / x.shape[-1]) / factor for j in range(half)]
    numbers = x[..., :half] + 1j * x[..., half:]
    numbers = numbers * np.exp(1j * positions[..., None, None] * np.array(frequencies))
    return np.concatenate([numbers.real, numbers.imag], axis=-1)


def test_pairs_of_dimensions_from_both_halves_are_rotated():
    rng = np.random.default_rng(0)
    x, positions = rng.normal(size=(2, 5, 4, 12)), rng.integers(0, 9000, (2, 5))
    rotations = rotations_at(jnp.asarray(positions, jnp.int32), 12, 100.0, 1.5)
    actual = rotate(jnp.asarray(x, jnp.float32), rotations)
    # The angles are float32.
    np.testing.assert_allclose(actual, plain_rotation(x, positions, 100.0, 1.5), atol=2e-3)
    near = rotations_at(jnp.asarray(positions % 50, jnp.int32), 12, 100.0, 1.5)
    actual = rotate(jnp.asarray(x, jnp.float32), near)
    np.testing.assert_allclose(actual, plain_rotation(x, positions % 50, 100.0, 1.5), atol=1e-5)


def test_scores_depend_only_on_distances():
    rng = np.random.default_rng(0)
    query, key = jnp.asarray(rng.normal(size=(2, 1, 1, 1, 12)), jnp.float32)

    def score(i, j):
        at = [rotations_at(jnp.full((1, 1), n, jnp.int32), 12, 100.0, 1.0) for n in (i, j)]
        return float((rotate(query, at[0]) * rotate(key, at[1])).sum())

    assert score(3, 8) == pytest.approx(score(103, 108), abs=1e-4)
    assert abs(score(3, 8) - score(8, 3)) > 1e-2


def test_angles_are_exact_in_bfloat16():
    """Products may be rounded, but angles may not: bfloat16 cannot represent position 257."""
    x = jnp.ones((1, 1, 1, 4), jnp.bfloat16)
    rotated = [
        rotate(x, rotations_at(jnp.full((1, 1), n, jnp.int32), 4, 10.0, 1.0)) for n in (256, 257)
    ]
    assert all(end.dtype == jnp.bfloat16 for end in rotated)
    assert np.abs(np.asarray(rotated[0] - rotated[1], np.float32)).max() > 0.1


def test_local_layers_have_their_own_base():
    positions = jnp.asarray([[0, 1, 2, 7]], jnp.int32)
    both = rotations_of_layers(dataclasses.replace(MODEL, rotary_local_base=10.0), positions)
    for is_local, base in ((False, 100.0), (True, 10.0)):
        expected = rotations_at(positions, 12, base, 1.5)
        jax.tree.map(np.testing.assert_array_equal, both[is_local], expected)
    same = rotations_of_layers(MODEL, positions)
    assert same[True] is same[False]
    assert rotations_of_layers(dataclasses.replace(MODEL, rotary_base=0.0), positions) == {}


TINY = Model(
    layers=2,
    hidden=32,
    heads=4,
    intermediate=64,
    positions=66,
    position_bias="gated",
    position_buckets=8,
    position_distance=16,
)
SIZE = 50

init = jax.jit(encoder.init, static_argnums=(1, 2, 3))
apply = jax.jit(encoder.apply, static_argnames="model")


def params(model=TINY):
    """Returns initial parameters with enough noise that each of them matters."""
    initial = init(jax.random.key(0), model, SIZE, 2)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: x + 0.3 * rng.standard_normal(x.shape, np.float32), initial)


def inputs(tokens):
    layout = segments(jnp.asarray(tokens))
    return encoder.Inputs(jnp.asarray(tokens), layout.position, layout.segment, layout.segment)


def example(rng, length):
    return np.concatenate([[0], rng.integers(4, SIZE - 1, length - 2), [2]])


def padded(examples, length=32):
    row = np.concatenate(examples)
    return np.pad(row, (0, length - len(row)), constant_values=1)


def plain_bucket(difference, count, distance):
    half, exact = count // 2, count // 4
    start = half if difference > 0 else 0
    far = abs(difference)
    if far < exact:
        return start + far
    share = math.log(far / exact) / math.log(distance / exact)
    return start + min(exact + int(share * (half - exact)), half - 1)


def spread(table, length):
    """Returns the bias of all pairs of tokens, [heads, length, length]."""
    line = PositionBias(TINY).apply({"params": {"table": table}}, length)
    return bias_tiles(line, length)[:, 0]


@pytest.mark.parametrize("count, distance", [(32, 128), (320, 800), (8, 16), (4, 2), (16, 33)])
def test_buckets_equal_a_plain_implementation(count, distance):
    differences = np.arange(-1000, 1001)
    actual = buckets(differences, count, distance)
    assert actual.tolist() == [plain_bucket(d, count, distance) for d in differences.tolist()]
    assert set(actual) == set(range(count)) - {count // 2}  # a positive difference of 0


def test_the_bias_of_two_places_is_the_table_entry_of_their_bucket():
    table = jax.random.normal(jax.random.key(0), (8, 4))
    bias = spread(table, 40)
    place = np.arange(40)
    expected = table[buckets(place[None, :] - place[:, None], 8, 16)]  # [query, key, heads]
    np.testing.assert_array_equal(bias, jnp.moveaxis(expected, -1, 0))


def test_bias_tiles_are_blocks_of_the_whole_bias():
    """Compares values and gradients, including blocks that are far apart."""
    line = jax.random.normal(jax.random.key(0), (3, 2 * 24))
    whole, tiles = bias_tiles(line, 24)[:, 0], bias_tiles(line, 6)
    weights = jax.random.normal(jax.random.key(1), whole.shape)
    for i, j in itertools.product(range(4), repeat=2):
        block = whole[:, 6 * i : 6 * i + 6, 6 * j : 6 * j + 6]
        np.testing.assert_array_equal(tiles[:, j - i + 3], block)
    gradient = jax.grad(lambda line: (weights * bias_tiles(line, 24)[:, 0]).sum())(line)
    place = np.arange(24)
    for difference in range(-23, 24):
        here = place[None, :] - place[:, None] == difference
        np.testing.assert_allclose(
            gradient[:, difference + 24], (weights * here).sum((1, 2)), rtol=1e-5, atol=1e-5
        )


def test_gates_read_the_query_with_its_bias():
    """Equation 6 has no bias; if the layer's input is 0, xlj's gates depend on the bias of the
    query only."""
    heads, length = 4, 5
    rng = np.random.default_rng(3)
    attention = Attention(TINY)
    x, ids = jnp.zeros((1, length, 32)), jnp.ones((1, length), jnp.int32)
    call = (x, Context(ids, ids, None, 1, jnp.ones((heads, 1, length, length))))
    weights = attention.init(jax.random.key(0), *call)["params"]
    weights = jax.tree.map(lambda p: rng.standard_normal(p.shape, np.float32), weights)
    _, captured = attention.apply(
        {"params": weights}, *call, capture_intermediates=lambda module, _: module.name == "gates"
    )
    actual = captured["intermediates"]["gates"]["__call__"][0]
    query = weights["query"]["bias"].reshape(heads, -1)
    update, reset = (1 / (1 + np.exp(-(query @ weights["gates"]["kernel"])))).T
    expected = 1 + update + (1 - update) * weights["gates"]["scale"] * reset
    np.testing.assert_allclose(
        actual, np.broadcast_to(expected[:, None], actual.shape[1:])[None], rtol=1e-5
    )


@pytest.mark.parity
def test_attention_equals_that_of_wavlm():
    """WavLM's attention is the paper's, except that its gates read the layer's input, divided into
    heads, instead of the query. If one matrix B maps each head's part of the input to its query,
    q = B x + b, then u . q equals (B^T u) . x + u . b."""
    torch = pytest.importorskip("torch", reason="WavLM needs PyTorch (pip install '.[parity]')")
    wavlm = pytest.importorskip("transformers.models.wavlm.modeling_wavlm")
    rows, length, heads, size, hidden = 3, 50, 4, 8, 32
    rng = np.random.default_rng(7)

    def normal(*shape):
        return rng.standard_normal(shape, np.float32)

    def kernel_and_bias():
        return {"kernel": normal(hidden, hidden) * hidden**-0.5, "bias": normal(hidden)}

    block, block_bias = normal(size, size), normal(size)
    gates = {"kernel": normal(size, 2), "scale": normal(heads)}
    xlj_weights = {
        "query": {
            "kernel": np.kron(np.eye(heads, dtype=np.float32), block.T),
            "bias": np.tile(block_bias, heads),
        },
        "key": kernel_and_bias(),
        "value": kernel_and_bias(),
        "output": kernel_and_bias(),
        "gates": gates,
    }
    table, x = normal(8, heads), normal(rows, length, hidden)
    seen = np.arange(length) < np.array([[length], [20], [7]])

    wavlm_attention = wavlm.WavLMAttention(hidden, heads, num_buckets=8, max_distance=16).eval()
    # WavLM's first gate is 1 - g_u = sigmoid(-u . q); it sums four outputs for each gate.
    vectors = gates["kernel"].T * np.array([[-1], [1]], np.float32)
    parts, part_biases = normal(2, 4, size), np.zeros((2, 4))
    parts[:, 0] += vectors @ block - parts.sum(1)
    part_biases[:, 0] = vectors @ block_bias
    wavlm_weights = {
        "gru_rel_pos_const": gates["scale"].reshape(1, heads, 1, 1),
        "gru_rel_pos_linear.weight": parts.reshape(8, size),
        "gru_rel_pos_linear.bias": part_biases.reshape(8),
        "rel_attn_embed.weight": table,
    }
    for name, short in [("query", "q"), ("key", "k"), ("value", "v"), ("output", "out")]:
        wavlm_weights[f"{short}_proj.weight"] = xlj_weights[name]["kernel"].T
        wavlm_weights[f"{short}_proj.bias"] = xlj_weights[name]["bias"]
    wavlm_attention.load_state_dict(
        {name: torch.tensor(w).float() for name, w in wavlm_weights.items()}
    )
    with torch.no_grad():
        expected = wavlm_attention(torch.tensor(x), torch.tensor(seen).long())[0].numpy()

    bias = spread(table, length)[:, None]
    attention = Attention(TINY)
    ids = np.zeros((rows, length), np.int32), np.where(seen, 0, 1).astype(np.int32)
    actual = attention.apply({"params": xlj_weights}, x, Context(*ids, None, 1, bias))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    without = attention.apply({"params": xlj_weights}, x, Context(*ids, None, 1, 0 * bias))
    assert np.abs(actual - without).max() > 0.1


def test_gates_that_give_a_factor_of_one_leave_the_bias_of_t5():
    weights = params()
    gates = weights["layers"]["attention"].pop("gates")
    plain = apply(weights, dataclasses.replace(TINY, position_bias="t5"), batch())
    # sigmoid(0) = 1/2: the factor is 1 + 1/2 + 1/2 * -2 * 1/2.
    half = {"kernel": 0 * gates["kernel"], "scale": 0 * gates["scale"] - 2}
    weights["layers"]["attention"]["gates"] = half
    np.testing.assert_allclose(apply(weights, TINY, batch()), plain, rtol=1e-5, atol=1e-5)


def batch(length=32):
    rng = np.random.default_rng(3)
    return inputs([padded([example(rng, 8), example(rng, 20)], length)])


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("bias", ["t5", "gated"])
def test_packed_examples_equal_unpacked_examples(bias, absolute):
    model = dataclasses.replace(TINY, position_bias=bias, absolute_positions=absolute)
    rng = np.random.default_rng(0)
    parts = [example(rng, n) for n in (9, 4, 13)]
    packed = apply(params(model), model, inputs([padded(parts)]))[0]
    alone = apply(params(model), model, inputs([padded([part], 40) for part in parts]))
    start = 0
    for index, part in enumerate(parts):
        actual, expected = packed[start : start + len(part)], alone[index, : len(part)]
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
        start += len(part)


def test_without_absolute_positions_the_bias_distinguishes_orders():
    tokens = np.array([[0, 5, 6, 7, 8, 9, 2]])
    reversed_tokens = tokens[:, [0, 5, 4, 3, 2, 1, 6]]

    def first(bias):
        model = dataclasses.replace(TINY, position_bias=bias, absolute_positions=False)
        weights = params(model)
        assert "position" not in weights["embeddings"]
        return [apply(weights, model, inputs(order))[0, 0] for order in (tokens, reversed_tokens)]

    np.testing.assert_allclose(*first("none"), rtol=1e-4, atol=1e-4)
    for bias in ("t5", "gated"):
        forward, backward = first(bias)
        assert jnp.abs(forward - backward).max() > 0.01


def test_bfloat16_computes_nearly_the_same():
    weights = encoder.init(jax.random.key(0), TINY, SIZE, 2)
    exact = apply(weights, TINY, batch())
    half = apply(weights, dataclasses.replace(TINY, dtype="bfloat16"), batch())
    assert half.dtype == jnp.float32
    assert 0 < jnp.abs(half - exact).max() < 0.1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_parameter_learns_from_the_first_step(dtype):
    model = dataclasses.replace(TINY, dtype=dtype, remat="all")
    weights = encoder.init(jax.random.key(0), model, SIZE, 2)
    gradient = jax.grad(lambda p: jnp.sin(apply(p, model, batch())).sum())(weights)
    gates = gradient["layers"]["attention"]["gates"]
    assert gates["kernel"].shape == (2, 8, 2) and gates["scale"].shape == (2, 4)
    assert (gates["kernel"] != 0).all() and (gates["scale"] != 0).all()
    table = gradient["position_bias"]["table"]
    assert (jnp.abs(table).sum(1) > 0).tolist() == [place != 4 for place in range(8)]


@pytest.mark.slow
def test_every_combination_of_options_builds():
    options = {
        "position_bias": ("none", "t5", "gated"),
        "absolute_positions": (True, False),
        "dtype": ("float32", "bfloat16"),
        "scan_layers": (True, False),
        "remat": ("none", "products", "all"),
    }
    mesh = jax.make_mesh((1, 8), ("replica", "fsdp"))
    for values in itertools.product(*options.values()):
        model = dataclasses.replace(TINY, **dict(zip(options, values, strict=True)))
        shapes = jax.eval_shape(lambda model=model: encoder.init(jax.random.key(0), model, SIZE, 2))
        trees.shardings(shapes, mesh)
        names = set(trees.named_leaves(shapes))
        assert ("embeddings/position" in names) == model.absolute_positions
        assert ("position_bias/table" in names) == (model.position_bias != "none")
        assert ("layers/attention/gates/kernel" in names) == (model.position_bias == "gated")
        output = jax.eval_shape(lambda p, model=model: encoder.apply(p, model, batch()), shapes)
        assert output.shape == (1, 32, 32) and output.dtype == jnp.float32


def test_the_bias_does_not_change_other_initial_values():
    models = (dataclasses.replace(TINY, position_bias="none"), TINY)
    initial = (encoder.init(jax.random.key(0), model, SIZE, 2) for model in models)
    plain, biased = map(trees.named_leaves, initial)
    for name, leaf in plain.items():
        np.testing.assert_array_equal(leaf, biased[name], err_msg=name)


def test_the_table_and_the_scale_have_no_weight_decay():
    factors = trees.named_leaves(multipliers.decay_factors(Optimizer(), params()))
    assert not factors["position_bias/table"] and not factors["layers/attention/gates/scale"]
    assert factors["layers/attention/gates/kernel"]
