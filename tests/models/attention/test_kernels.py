"""Fused attention: kernels (interpreted without a GPU) against dense attention, and their sizes."""

import dataclasses
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import Model
from xlj.models import dropout
from xlj.models.attention import choosing, interface, tiles, tpu, triton
from xlj.models.attention.interface import Mask, Operands
from xlj.models.attention.kernels import Fused
from xlj.models.attention.layer import shared_bias
from xlj.models.attention.reference import Dense
from xlj.models.positions import bias_tiles
from xlj.sharding import devices

KERNELS = {"gpu": triton, "tpu": tpu}
PLATFORMS = tuple(KERNELS)


def problem(rows, length, heads, size, bias="none", dtype=jnp.float32, seed=0):
    """Returns random arrays, segment ids of queries and keys, and weights of the output. Segments
    are in order, except that some queries have other ids, some keys are hidden, and some queries
    see no key."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), dtype)

    segments = np.sort(rng.integers(0, 5, (rows, length)), 1)
    is_other, is_hidden = rng.random((2, rows, length)) < 0.2
    queries = np.where(is_other, rng.integers(0, 9, (rows, length)), segments)
    keys = np.where(is_hidden, -1, segments)
    arrays = {name: normal(rows, length, heads, size) for name in ("query", "key", "value")}
    if bias != "none":
        arrays["line"] = normal(heads, 4 * 128 * -(-length // 128)).astype(jnp.float32)
    if bias == "gated":
        arrays["gates"] = normal(rows, heads, length).astype(jnp.float32)
    weights = normal(rows, length, heads, size).astype(jnp.float32)
    return arrays, (jnp.asarray(queries, jnp.int32), jnp.asarray(keys, jnp.int32)), weights


def middle(line, length):
    """Returns the part of a bias line that holds the differences within rows of this length."""
    start = line.shape[1] // 2 - length
    return line[:, start : start + 2 * length]


def seeds_of(rows):
    return dropout.row_seeds(jax.random.split(jax.random.key(1), rows), 3, 1)


def dense(arrays, ids, rate, window=None):
    length = arrays["query"].shape[1]
    return computed(Dense(), length, arrays, ids, rate, window)


def computed(implementation, block, arrays, ids, rate, window):
    """Returns attention with the bias in tiles of `block` queries, float32."""
    length = interface.count_blocks(arrays["query"].shape[1], block) * block
    bias = bias_tiles(middle(arrays["line"], length), block) if "line" in arrays else None
    heads = [arrays[name] for name in ("query", "key", "value")]
    seeds, mask = seeds_of(len(ids[0])), Mask(*ids, window)
    operands = Operands(*heads, mask, bias, arrays.get("gates"), seeds, rate)
    return implementation.attend(operands).astype(jnp.float32)


def block_of(query, platform):
    return KERNELS[platform].block(query.shape[-1], query.dtype)


def fused(arrays, ids, rate, platform, window=None):
    block = block_of(arrays["query"], platform)
    return computed(Fused(KERNELS[platform]), block, arrays, ids, rate, window)


def with_gradients(attention, arrays, weights):
    def total(arrays):
        output = attention(arrays)
        return (output * weights).sum(), output

    (_, output), gradients = jax.jit(jax.value_and_grad(total, has_aux=True))(arrays)
    return {"output": output} | gradients


def largest_error(actual, expected):
    expected = np.asarray(expected, np.float64)
    return np.abs(np.asarray(actual, np.float64) - expected).max() / np.abs(expected).max()


CASES = [
    # rows, length, heads, size, bias, rate, window
    (2, 150, 3, 64, "gated", 0.3, None),  # on TPUs two groups of heads, one padded
    (5, 20, 1, 16, "t5", 0.0, None),  # on GPUs rows are summed in four parts
    (2, 300, 3, 16, "gated", 0.3, 64),  # a window visits tiles of three blocks only
    (1, 140, 1, 16, "none", 0.1, 5),
    (1, 70, 2, 16, "t5", 0.0, 0),  # each token sees only itself
    (1, 70, 1, 16, "none", 0.0, 69),  # the window is exactly the whole row
    (1, 70, 1, 16, "none", 0.0, 68),
    pytest.param(2, 70, 3, 8, "none", 0.0, None, marks=pytest.mark.slow),
    pytest.param(3, 128, 2, 64, "t5", 0.1, None, marks=pytest.mark.slow),
    pytest.param(5, 200, 4, 64, "gated", 0.0, None, marks=pytest.mark.slow),
    pytest.param(1, 300, 1, 24, "t5", 0.0, None, marks=pytest.mark.slow),
    pytest.param(1, 20, 1, 200, "gated", 0.5, None, marks=pytest.mark.slow),
    pytest.param(2, 400, 2, 64, "none", 0.1, 64, marks=pytest.mark.slow),
    pytest.param(2, 300, 2, 64, "gated", 0.1, 129, marks=pytest.mark.slow),
    pytest.param(1, 200, 1, 200, "t5", 0.3, 33, marks=pytest.mark.slow),
    pytest.param(1, 100, 1, 24, "gated", 0.3, 1000, marks=pytest.mark.slow),
]


@pytest.mark.gpu
@pytest.mark.parametrize("bias", ["none", "t5", "gated"])
@pytest.mark.parametrize("size", [16, 64, 128, 200])
@pytest.mark.parametrize("window", [None, 40])
def test_compiled_kernels_equal_dense_attention(window, size, bias):
    """Tests heads of several sizes, in float32 and bfloat16, with dropout, in rows of several
    blocks."""
    test_kernels_equal_dense_attention(3, 250, 2, size, bias, 0.3, window, "gpu")
    test_kernels_in_bfloat16_are_as_accurate_as_dense_attention("gpu", window, size, bias)


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("rows, length, heads, size, bias, rate, window", CASES)
def test_kernels_equal_dense_attention(rows, length, heads, size, bias, rate, window, platform):
    arrays, ids, weights = problem(rows, length, heads, size, bias)
    actual = with_gradients(lambda a: fused(a, ids, rate, platform, window), arrays, weights)
    expected = with_gradients(lambda a: dense(a, ids, rate, window), arrays, weights)
    assert set(actual) == set(expected)
    for name, array in expected.items():
        assert actual[name].shape == array.shape
        # If each query sees one key, its gradient is 0 up to rounding.
        assert largest_error(actual[name], array) < 1e-5 or np.abs(array).max() < 1e-5, name


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("window", [None, 40])
def test_kernels_in_bfloat16_are_as_accurate_as_dense_attention(
    platform, window, size=16, bias="gated"
):
    """bfloat16 has 8 bits: errors are less than 1 % of the largest value, and about twice those of
    dense attention at most."""
    arrays, ids, weights = problem(2, 150, 2, size, bias, jnp.bfloat16)
    wide = {name: array.astype(jnp.float32) for name, array in arrays.items()}
    exact = with_gradients(lambda a: dense(a, ids, 0.3, window), wide, weights)
    actual = with_gradients(lambda a: fused(a, ids, 0.3, platform, window), arrays, weights)
    plain = with_gradients(lambda a: dense(a, ids, 0.3, window), arrays, weights)
    for name, array in exact.items():
        errors = largest_error(actual[name], array), largest_error(plain[name], array)
        assert errors[0] < 0.01 and errors[0] < 2 * errors[1] + 1e-3, (name, errors)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_query_without_keys_gives_zeros_and_no_gradient(platform):
    arrays, ids, _ = problem(1, 140, 2, 16)
    ids = (jnp.full_like(ids[0], 7), ids[1])
    weights = jnp.ones((1, 140, 2, 16))
    actual = with_gradients(lambda a: fused(a, ids, 0.2, platform), arrays, weights)
    assert all((array == 0).all() for array in actual.values())


@pytest.mark.parametrize("platform", PLATFORMS)
def test_blocks_that_no_query_sees_are_never_read(platform):
    """Each block of the row is a segment. If one block is NaN, the results of all others are
    unchanged, forward and backward. A mask alone would multiply NaN by 0 and propagate it."""
    block = KERNELS[platform].block(16, jnp.float32)
    arrays, _, weights = problem(1, 3 * block, 1, 16, "gated")
    ids = (jnp.repeat(jnp.arange(3, dtype=jnp.int32), block)[None],) * 2
    whole = with_gradients(lambda a: fused(a, ids, 0.1, platform), arrays, weights)
    broken = {
        name: array.at[:, block : 2 * block].set(jnp.nan)
        if name in ("query", "key", "value")
        else array
        for name, array in arrays.items()
    }
    actual = with_gradients(lambda a: fused(a, ids, 0.1, platform), broken, weights)
    for name in ("output", "query", "key", "value"):
        others = np.r_[0:block, 2 * block : 3 * block]
        np.testing.assert_array_equal(actual[name][:, others], whole[name][:, others], err_msg=name)
    far = np.abs(np.arange(actual["line"].shape[1]) - actual["line"].shape[1] // 2) > block
    np.testing.assert_array_equal(actual["line"][:, far], 0)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_blocks_beyond_the_window_are_never_read(platform):
    """The first block is NaN, and the window has the length of a block: the results from the third
    block on are unchanged, forward and backward."""
    block = KERNELS[platform].block(16, jnp.float32)
    arrays, _, weights = problem(1, 4 * block, 1, 16, "gated")
    ids = (jnp.zeros((1, 4 * block), jnp.int32),) * 2
    whole = with_gradients(lambda a: fused(a, ids, 0.1, platform, block), arrays, weights)
    of_heads = ("query", "key", "value")
    broken = arrays | {name: arrays[name].at[:, :block].set(jnp.nan) for name in of_heads}
    actual = with_gradients(lambda a: fused(a, ids, 0.1, platform, block), broken, weights)
    far = slice(2 * block, None)
    np.testing.assert_array_equal(actual["output"][:, far], whole["output"][:, far])
    for name in of_heads:
        assert not np.isfinite(actual[name][:, :block]).any(), name
        # The second block sees the first one, so its results are NaN.
        np.testing.assert_array_equal(
            actual[name][:, 3 * block :], whole[name][:, 3 * block :], err_msg=name
        )
    away = np.abs(np.arange(actual["line"].shape[1]) - actual["line"].shape[1] // 2) > 2 * block
    np.testing.assert_array_equal(actual["line"][:, away], 0)


@pytest.mark.parametrize("attention", ["square", "blocks", *PLATFORMS])
def test_padding_beyond_the_window_gives_zeros_and_no_gradient(attention):
    """A row has ten tokens, then padding that sees no key, with values whose products with the
    gradient overflow. The results of the tokens do not depend on them."""
    length = 40 if attention == "square" else 256
    arrays, _, weights = problem(1, length, 1, 16, "none" if attention == "blocks" else "gated")
    queries = jnp.ones((1, length), jnp.int32)
    ids = queries, queries.at[:, 10:].set(-1)

    def attend(arrays):
        if attention in PLATFORMS:
            return fused(arrays, ids, 0.1, attention, 5)
        return dense(arrays, ids, 0.1, 5)

    of_heads, results = ("query", "key", "value"), []
    for large in (0.0, 3e38):
        padded = arrays | {name: arrays[name].at[:, 15:].set(large) for name in of_heads}
        padded["value"] = padded["value"].at[:, 15:, :, ::2].multiply(-1)
        results.append(with_gradients(attend, padded, 100 * jnp.abs(weights)))
        assert all(np.isfinite(array).all() for array in results[-1].values())
        for name, start in (("output", 15), ("query", 15), ("key", 10), ("value", 10)):
            np.testing.assert_array_equal(results[-1][name][:, start:], 0, err_msg=name)
            assert np.any(results[-1][name][:, :10]), name
    for name, array in results[0].items():
        np.testing.assert_array_equal(results[1][name], array, err_msg=name)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_large_scores_stay_finite_in_any_order_of_blocks(platform):
    """Scores are 300 in one block and 0 in the other: exp(300) and exp(300 - 0) overflow."""
    block = KERNELS[platform].block(16, jnp.float32)
    ids = (jnp.zeros((1, 2 * block), jnp.int32),) * 2
    value = jnp.asarray(np.random.default_rng(0).normal(size=(1, 2 * block, 1, 16)), jnp.float32)
    query = jnp.full(value.shape, 5.0)
    for large in (slice(None, block), slice(block, None)):
        key = jnp.zeros(value.shape).at[:, large].set(15.0)
        actual = Fused(KERNELS[platform]).attend(Operands(query, key, value, Mask(*ids)))
        expected = jnp.broadcast_to(value[:, large].mean(1, keepdims=True), actual.shape)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_a_query_without_keys_has_a_log_sum_of_0():
    actual = tiles.log_sum(jnp.array([tiles.NEGATIVE, 2.0]), jnp.array([0.0, 3.0]))
    np.testing.assert_allclose(actual, [0, 2 + np.log(3)], rtol=1e-6)


@pytest.mark.parametrize("dtype, exact", [("float32", True), ("bfloat16", False)])
def test_products_of_float32_are_exact_on_every_chip(dtype, exact):
    x = jnp.zeros((16, 16), dtype)
    program = str(jax.make_jaxpr(lambda x: tiles.dot(x, x, (1, 1)))(x))
    assert ("HIGHEST" in program) == exact


@pytest.mark.parametrize(
    "size, dtype, blocks", [(64, "float32", (64, 128)), (65, "float32", (32, 128)),
                            (128, "bfloat16", (64, 128)), (129, "bfloat16", (32, 128))]
)  # fmt: skip
def test_blocks_are_smaller_for_large_heads(size, dtype, blocks):
    assert (triton.block(size, dtype), tpu.block(size, dtype)) == blocks


def test_the_shared_bias_has_the_block_size_of_the_heads():
    """A row of 40 tokens has two blocks of 32 in float32, or one of 64 in bfloat16."""
    model = Model(hidden=200, heads=2, position_bias="t5", attention="triton")
    table = jnp.zeros((model.position_buckets, 2))
    assert shared_bias({"table": table}, model, 40).shape == (2, 3, 32, 32)
    narrow = dataclasses.replace(model, dtype="bfloat16")
    assert shared_bias({"table": table}, narrow, 40).shape == (2, 1, 64, 64)


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", [64, 512, 2048])
def test_local_and_full_layers_need_the_bias_in_one_form(platform, dtype, length, monkeypatch):
    """Otherwise `shared_bias` would need two forms."""
    monkeypatch.setattr(devices, "platform", lambda: platform)
    model = Model(dtype=dtype, position_bias="t5", local_attention=64)
    full, local = (choosing.choose_for(model, is_local, length) for is_local in (False, True))
    assert full.name == local.name


def test_bounds_are_the_first_and_last_blocks_seen():
    rng = np.random.default_rng(0)
    queries, keys = rng.integers(0, 30, (2, 4, 24))
    bounds = tiles.bounds(jnp.asarray(queries), jnp.asarray(keys), 4)
    seen = (queries[:, :, None] == keys[:, None, :]).reshape(4, 6, 4, 6, 4).any((2, 4))
    assert not seen.any(2).all()  # some blocks see no block
    for first, end, by_block in ((*bounds[:2], seen), (*bounds[2:], seen.swapaxes(1, 2))):
        for row, block in np.ndindex(4, 6):
            places = np.flatnonzero(by_block[row, block])
            expected = (places[0], places[-1] + 1) if len(places) else (0, 0)
            assert (int(first[row, block]), int(end[row, block])) == expected


@pytest.mark.parametrize("window", [0, 1, 2, 4, 5, 11, 23, 50])
def test_bounds_of_a_window_are_the_first_and_last_blocks_within_it(window):
    rng = np.random.default_rng(0)
    queries, keys = rng.integers(0, 6, (2, 4, 24))
    bounds = tiles.bounds(jnp.asarray(queries), jnp.asarray(keys), 4, window)
    places = np.arange(24)
    near = np.abs(places[:, None] - places) <= window
    seen = ((queries[:, :, None] == keys[:, None, :]) & near).reshape(4, 6, 4, 6, 4).any((2, 4))
    for first, end, by_block in ((*bounds[:2], seen), (*bounds[2:], seen.swapaxes(1, 2))):
        for row, block in np.ndindex(4, 6):
            visited = np.flatnonzero(by_block[row, block])
            expected = (visited[0], visited[-1] + 1) if len(visited) else (0, 0)
            assert (int(first[row, block]), int(end[row, block])) == expected


@pytest.mark.parametrize(
    "block, window, most, tiles_of_row",
    [(128, 64, 3, 22), (128, 128, 3, 22), (128, 129, 5, 34), (64, 64, 3, 46), (64, 65, 5, 74),
     (32, 64, 5, 154), (128, 0, 1, 8), (128, 1, 3, 22), (128, None, 8, 64), (128, 5000, 8, 64)],
)  # fmt: skip
def test_the_number_of_tiles_that_a_window_visits(block, window, most, tiles_of_row):
    """The row has one example of 1,024 tokens."""
    ids = jnp.zeros((1, 1024), jnp.int32)
    bounds = tiles.bounds(ids, ids, block, window)
    for first, end in (bounds[:2], bounds[2:]):
        assert int((end - first).max()) == most and int((end - first).sum()) == tiles_of_row


def test_comparing_ids_within_a_window_takes_time_linear_in_the_length():
    """No array of the comparison has as many elements as pairs of tokens."""
    ids = jax.ShapeDtypeStruct((1, 8192), jnp.int32)
    program = jax.make_jaxpr(lambda a, b: tiles.bounds(a, b, 64, 64))(ids, ids)
    sizes = [math.prod(v.aval.shape) for e in program.jaxpr.eqns for v in e.outvars]
    assert max(sizes) == 8192 * 3 * 64


@pytest.mark.parametrize(
    "window, length, narrows",
    [(None, 9, False), (0, 9, True), (7, 9, True), (8, 9, False), (9, 9, False), (0, 1, False)],
)
def test_a_window_that_covers_the_whole_row_is_ignored(window, length, narrows):
    assert interface.narrowing(window, length) == (window if narrows else None)


def test_a_negative_window_is_refused():
    arrays, ids, _ = problem(1, 20, 1, 16)
    for implementation in (Dense(), Fused(triton)):
        with pytest.raises(ValueError, match="window=-1"):
            implementation.attend(Operands(**arrays, mask=Mask(*ids, -1)))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_blocks_lie_within_their_arrays(platform, monkeypatch):
    """A compiled kernel would read memory outside an array; interpreted kernels clamp to the
    nearest block."""
    called_kernels, pallas_call = [], KERNELS[platform].pl.pallas_call

    def checked(kernel, **options):
        spec = options.get("grid_spec", SimpleNamespace(**options))
        scalars, name = getattr(spec, "num_scalar_prefetch", 0), options["name"]

        def call(*inputs):
            arrays = [*inputs[scalars:], *options["out_shape"]]
            for block, array in zip([*spec.in_specs, *spec.out_specs], arrays, strict=True):
                if block is None:
                    continue
                sizes = [size or 1 for size in block.block_shape]
                for place in np.ndindex(*spec.grid):
                    starts = np.multiply(block.index_map(*place), sizes)
                    assert (starts >= 0).all(), (name, place)
                    assert (starts + sizes <= array.shape).all(), (name, place)
            called_kernels.append(name)
            return pallas_call(kernel, **options)(*inputs)

        return call

    monkeypatch.setattr(KERNELS[platform].pl, "pallas_call", checked)
    arrays, ids, weights = problem(3, 150, 3, 64, "gated")
    with_gradients(lambda a: fused(a, ids, 0.3, platform), arrays, weights)
    assert len(called_kernels) == {"gpu": 4, "tpu": 2}[platform]


@pytest.mark.parametrize(
    "platform, sizes", [("gpu", {8: 16, 24: 32, 64: 64, 200: 256}),
                        ("tpu", {8: 8, 24: 32, 64: 64, 128: 128, 129: 256, 200: 256, 320: 384})]
)  # fmt: skip
def test_the_size_that_heads_are_padded_to(platform, sizes):
    assert {size: KERNELS[platform].head_size(size) for size in sizes} == sizes


def test_tpu_kernels_read_heads_in_padded_groups():
    grouped = tpu._Grouped((2, 256, 3, 64))
    gates, bias = jnp.ones((2, 3, 256)), jnp.ones((3, 3, 128, 128))
    seeds, bias, gates = grouped.prepare(jnp.ones((2, 3), jnp.int32), bias, gates)
    assert [x.shape for x in (seeds, bias, gates)] == [(2, 4), (4, 3, 128, 128), (2, 2, 2, 256)]
    np.testing.assert_array_equal(seeds[:, 3:], 0)
    x = jnp.ones((2, 256, 3, 64))
    flat = grouped.flat(x)
    assert flat.shape == (2, 256, 2 * 128) and flat.sum() == x.sum()
    np.testing.assert_array_equal(grouped.unflat(flat), x)


@pytest.mark.parametrize("block, window, keys", [(64, 0, 64), (64, 64, 192), (128, 64, 384),
                                                 (32, 65, 224), (64, None, 768)])  # fmt: skip
def test_a_kernel_states_the_keys_of_the_tiles_that_it_visits(block, window, keys):
    sizes = tiles.Sizes(block, 0.0, True, window)
    assert sizes.kernel_name("attention") == ("attention" if window is None else "attention_local")
    length = 12 * 64
    ids = jnp.ones((1, length), jnp.int32)  # a row in whose middle each tile has all its keys
    bounds = tiles.bounds(ids, ids, block, window)
    assert int((bounds.end_key - bounds.first_key).max()) * block == keys
    query = jax.ShapeDtypeStruct((3, length, 2, 16), jnp.bfloat16)
    stated = sizes.cost(5, [query, ids], query)
    assert stated.flops == 5 * 2 * 3 * length * 2 * 16 * keys
    assert stated.bytes_accessed == 3 * length * 2 * 16 * 2 + length * 4
