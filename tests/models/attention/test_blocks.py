"""Local attention in blocks against attention over all pairs, and the functions for blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.models import dropout
from xlj.models.attention import blocks, tiles
from xlj.models.attention.blocks import LocalBlocks
from xlj.models.attention.interface import Mask, Operands, Request
from xlj.models.attention.reference import Dense

ROWS, HEADS, SIZE = 2, 2, 8


def normal(*shape, seed=0, dtype="float32"):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def problem(length, dtype="float32", irregular=True):
    """Returns query, key and value, segment ids, and weights of the output. If `irregular`, some
    queries have the ids of other examples, and some keys are hidden."""
    rng = np.random.default_rng(length)
    heads = {
        name: normal(ROWS, length, HEADS, SIZE, seed=seed, dtype=dtype)
        for seed, name in enumerate(("query", "key", "value"))
    }
    packed = np.sort(rng.integers(0, 3, (ROWS, length)), 1)
    packed[1] = packed[1, ::-1]  # both ends have id 0 once, like places outside the row
    is_other, is_hidden = rng.random((2, ROWS, length)) < (0.3 if irregular else 0)
    queries, keys = np.where(is_other, 2 - packed, packed), np.where(is_hidden, -1, packed)
    keys[:, -20:] = -1
    ids = [jnp.asarray(x, jnp.int32) for x in (queries, keys)]
    return heads, ids, normal(ROWS, length, HEADS, SIZE, seed=9)


def seeds_of(rate):
    return dropout.row_seeds(jax.random.split(jax.random.key(1), ROWS), 3, 1) if rate else None


def passes(implementation, heads, weights, mask, **options):
    def total(heads):
        output = implementation.attend(Operands(**heads, mask=mask, **options))
        return (output.astype(jnp.float32) * weights).sum(), output

    (_, output), gradients = jax.jit(jax.value_and_grad(total, has_aux=True))(heads)
    return {"output": output, **gradients}


def in_blocks_and_over_all_pairs(length, window, rate=0.0, dtype="float32", irregular=True):
    heads, ids, weights = problem(length, dtype, irregular)
    options = {"mask": Mask(*ids, window), "seeds": seeds_of(rate), "rate": rate}
    return [passes(each, heads, weights, **options) for each in (LocalBlocks(), Dense())]


@pytest.mark.parametrize(
    "length, window, rate, irregular",
    [
        (257, 64, 0.2, True),  # five blocks, of which the last has one query
        (256, 64, 0.0, False),
        (256, 0, 0.2, True),
        (260, 5, 0.2, False),
        (330, 65, 0.2, True),  # blocks of 80
        (449, 64, 0.0, True),
        (100, 20, 0.2, True),  # two blocks
    ],
)
def test_attention_in_blocks_equals_attention_over_all_pairs(length, window, rate, irregular):
    actual, expected = in_blocks_and_over_all_pairs(length, window, rate, irregular=irregular)
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-4, atol=2e-6, err_msg=name)
    assert not np.array_equal(
        actual["output"], in_blocks_and_over_all_pairs(length, window + 1, rate)[0]["output"]
    )


def test_attention_in_blocks_in_bfloat16_differs_only_by_rounding():
    actual, expected = in_blocks_and_over_all_pairs(256, 64, 0.2, "bfloat16")
    for name, array in expected.items():
        assert actual[name].dtype == jnp.bfloat16, name
        error = np.abs(np.asarray(actual[name], "f4") - np.asarray(array, "f4")).max()
        assert error < 0.01 * np.abs(np.asarray(array, "f4")).max(), name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_backward_pass_saves_the_weights_of_blocks_and_no_copies_of_keys(dtype):
    length, block, rate = 512, 64, 0.1
    heads, ids, _ = problem(length, dtype)

    def attend(query, key, value):
        operands = Operands(query, key, value, Mask(*ids, 64), seeds=seeds_of(rate), rate=rate)
        return LocalBlocks().attend(operands)

    leaves = jax.tree.leaves(jax.vjp(attend, *heads.values())[1])
    of_pairs = [leaf for leaf in leaves if leaf.shape[-2:] == (block, 3 * block)]
    assert [(leaf.shape, leaf.dtype) for leaf in of_pairs] == [
        ((ROWS, HEADS, length // block, block, 3 * block), jnp.dtype(dtype))
    ]
    vectors = ROWS * length * HEADS * SIZE
    assert sum(leaf.size for leaf in leaves if leaf is not of_pairs[0]) <= 4 * vectors + ROWS


def test_the_program_has_no_array_of_all_pairs():
    heads, ids, weights = problem(512)

    def text(implementation):
        run = jax.jit(lambda heads: passes(implementation, heads, weights, Mask(*ids, 64)))
        return run.lower(heads).as_text()

    assert "512x512x" not in text(LocalBlocks()) and "512x512x" in text(Dense())


@pytest.mark.parametrize(
    "length, window, block, is_fast",
    [(512, 64, 64, True), (256, 64, 64, True), (255, 64, 64, False), (512, 3, 64, True),
     (512, 0, 64, True), (512, 65, 80, True), (512, 128, 128, True), (511, 128, 128, False)],
)  # fmt: skip
def test_blocks_are_at_least_as_long_as_the_window_and_rows_have_four_or_more(
    length, window, block, is_fast
):
    assert blocks.block_of(window) == block
    request = Request("cpu", "float32", length, 12, 64, window)
    assert LocalBlocks().why_not(request) is None
    assert (LocalBlocks().why_slower(request) is None) == is_fast


def test_blocks_take_neither_full_attention_nor_a_bias():
    request = Request("cpu", "float32", 512, 12, 64, None)
    assert LocalBlocks().why_not(request) == "no local window"
    biased = request._replace(window=64, has_bias=True)
    assert LocalBlocks().why_not(biased) == "takes no position bias"


def test_spans_are_blocks_with_their_two_neighbours():
    x = jnp.arange(1, 8)[None, :, None]
    expected = [
        [0, 0, 0, 1, 2, 3, 4, 5, 6],
        [1, 2, 3, 4, 5, 6, 7, 0, 0],
        [4, 5, 6, 7, 0, 0, 0, 0, 0],
    ]
    np.testing.assert_array_equal(blocks.gather_spans(x, 3)[0, :, :, 0], expected)
    np.testing.assert_array_equal(blocks.split_blocks(x, 3)[0, 2, :, 0], [7, 0, 0])
    np.testing.assert_array_equal(blocks.join_blocks(blocks.split_blocks(x, 3), 7), x)


def test_sum_spans_is_the_gradient_of_gather_spans():
    x, gradient = normal(2, 10, 3), normal(2, 4, 9, 3, seed=1)
    spans, backward = jax.vjp(lambda x: blocks.gather_spans(x, 3), x)
    assert spans.shape == gradient.shape
    actual = blocks.sum_spans(gradient, 10)
    np.testing.assert_allclose(actual, backward(gradient)[0], rtol=1e-6)


def test_dropout_in_blocks_equals_dropout_of_the_same_pairs():
    length, block, rate = 10, 4, 0.5
    square = dropout.drop(jnp.ones((ROWS, HEADS, length, length)), seeds_of(rate), rate)
    ones = jnp.ones((ROWS, HEADS, 3, block, 3 * block))
    places = blocks._positions(length, block)
    actual = np.asarray(tiles.drop(ones, seeds_of(rate), *places, rate))
    for query, key in np.ndindex(length, length):
        part, place = divmod(query, block)
        inside = key - (part - 1) * block
        if 0 <= inside < 3 * block:
            np.testing.assert_array_equal(
                actual[:, :, part, place, inside], square[:, :, query, key]
            )
