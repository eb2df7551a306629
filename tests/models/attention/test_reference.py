"""Dense attention and its hand-written gradient against the plain softmax formula."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.models import dropout
from xlj.models.attention.interface import Mask, Operands
from xlj.models.attention.reference import Dense
from xlj.sharding import devices

ROWS, LENGTH, HEADS, SIZE = 3, 10, 2, 4
RATE = 0.25
ARRAYS_OF_HEADS = ("query", "key", "value")


def random_arrays(dtype="float32", bias=None):
    """Returns random arrays, segment ids of queries and keys, and weights of the output. There are
    two segments, hidden keys, and a row without visible keys."""
    keys = itertools.chain(jax.random.split(jax.random.key(3), 9))
    shapes = dict.fromkeys(ARRAYS_OF_HEADS, (ROWS, LENGTH, HEADS, SIZE))
    arrays = {n: jax.random.normal(next(keys), s).astype(dtype) for n, s in shapes.items()}
    if bias:
        arrays["bias"] = jax.random.normal(next(keys), (HEADS, LENGTH, LENGTH))
    if bias == "gated":
        arrays["gates"] = jax.random.normal(next(keys), (ROWS, HEADS, LENGTH))
    queries = np.array([[1] * 4 + [2] * 6, [1] * 10, [1] * 10])
    hidden = np.array([[1] * 4 + [2] * 3 + [-1] * 3, [1] * 9 + [-1], [-1] * 10])
    weights = jax.random.normal(next(keys), shapes["query"])
    return arrays, jnp.asarray(queries, jnp.int32), jnp.asarray(hidden, jnp.int32), weights


def seeds(rate):
    return dropout.row_seeds(jax.random.split(jax.random.key(1), ROWS), 3, 1) if rate else None


def dropout_factors(rate):
    """Returns the factor that dropout applies to each attention weight."""
    shape = (HEADS, LENGTH, LENGTH)
    if not rate:
        return np.ones((ROWS, *shape))
    return np.asarray(dropout.keep_mask(seeds(rate), shape, rate)) * dropout.scale(rate)


def plain_attention(
    query, key, value, query_ids, key_ids, bias=None, gates=None, *, factors, window
):
    """Computes the attention of one query at a time; jax.grad can differentiate it."""
    outputs = []
    for row, place, head in np.ndindex(ROWS, LENGTH, HEADS):
        seen = np.flatnonzero(key_ids[row] == query_ids[row, place])
        if window is not None:
            seen = seen[(place - window <= seen) & (seen <= place + window)]
        if not len(seen):
            outputs.append(jnp.zeros(SIZE))
            continue
        scores = key[row, seen, head] @ query[row, place, head] / SIZE**0.5
        if bias is not None:
            gate = 1 if gates is None else gates[row, head, place]
            scores += bias[head, place, seen] * gate
        exps = jnp.exp(scores)
        weights = exps / exps.sum() * factors[row, head, place, seen]
        outputs.append(weights @ value[row, seen, head])
    return jnp.stack(outputs).reshape(ROWS, LENGTH, HEADS, SIZE)


def passes(attend, arrays, weights):
    """Returns the output, and the gradient of each array."""

    def total(arrays):
        output = attend(**arrays)
        return (output.astype(jnp.float32) * weights).sum(), output

    (_, output), gradients = jax.jit(jax.value_and_grad(total, has_aux=True))(arrays)
    return {"output": output, **gradients}


def actual_and_expected(bias, rate, dtype="float32", window=None):
    arrays, queries, keys, weights = random_arrays(dtype, bias)
    factors, options = dropout_factors(rate), {"seeds": seeds(rate), "rate": rate}
    mask = Mask(queries, keys, window)

    def attend(bias=None, **rest):
        bias = None if bias is None else bias[:, None]
        return Dense().attend(Operands(**rest, bias=bias, mask=mask, **options))

    actual = passes(attend, arrays, weights)
    wide = {name: array.astype(jnp.float32) for name, array in arrays.items()}
    expected = passes(
        lambda **a: plain_attention(
            **a,
            query_ids=np.asarray(queries),
            key_ids=np.asarray(keys),
            factors=factors,
            window=window,
        ),
        wide,
        weights,
    )
    return arrays, actual, expected


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("bias, rate", [(None, 0.0), ("shared", RATE), ("gated", RATE)])
def test_values_and_gradients_equal_those_of_the_softmax_formula(bias, rate, platform, monkeypatch):
    monkeypatch.setattr(devices, "platform", lambda: platform)
    _, actual, expected = actual_and_expected(bias, rate)
    assert (
        set(actual) == set(expected) and len(actual) == 4 + {None: 0, "shared": 1, "gated": 2}[bias]
    )
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
    assert not np.any(actual["output"][2]) and not np.any(actual["query"][2])


@pytest.mark.parametrize("window", [0, 3, 8, 50])
@pytest.mark.parametrize("bias, rate", [(None, RATE), ("gated", RATE)])
def test_values_and_gradients_in_a_window_equal_those_of_the_softmax_formula(bias, rate, window):
    _, actual, expected = actual_and_expected(bias, rate, window=window)
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("bias, rate", [(None, 0.0), ("gated", RATE)])
def test_errors_in_bfloat16_are_small(bias, rate):
    """bfloat16 has 8 bits: errors are up to 2 % of the largest value; gradients have its type."""
    arrays, actual, expected = actual_and_expected(bias, rate, "bfloat16")
    for name, array in expected.items():
        assert actual[name].dtype == arrays.get(name, arrays["query"]).dtype, name
        error = np.abs(np.asarray(actual[name], np.float32) - array).max()
        assert error < 0.02 * np.abs(array).max(), name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention_weights_are_saved_once_in_the_dtype_of_the_products(dtype):
    """The saved arrays are the weights, query, key, value and output, and one number per row."""
    arrays, queries, keys, _ = random_arrays(dtype)

    def attend(query, key, value):
        mask = Mask(queries, keys)
        return Dense().attend(Operands(query, key, value, mask, seeds=seeds(RATE), rate=RATE))

    _, backward = jax.vjp(attend, *arrays.values())
    leaves = jax.tree.leaves(backward)
    of_pairs = [leaf for leaf in leaves if leaf.shape[-2:] == (LENGTH, LENGTH)]
    assert [(leaf.shape, leaf.dtype) for leaf in of_pairs] == [
        ((ROWS, HEADS, LENGTH, LENGTH), jnp.dtype(dtype))
    ]
    vectors = ROWS * LENGTH * HEADS * SIZE
    assert sum(leaf.size for leaf in leaves if leaf is not of_pairs[0]) <= 4 * vectors + ROWS
