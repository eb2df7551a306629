"""Dropout: its masks against NumPy, and their statistics."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import dropout as reference

from xlj.models.dropout import dropout, keep_mask, row_seeds


@functools.cache
def eight_keys():
    """Returns random keys of 8 rows, created lazily: a process that has used JAX cannot fork."""
    return jax.random.split(jax.random.key(0), 8)


def masks(keys, shape, rate=0.1, layer=1, site=1):
    return np.asarray(keep_mask(row_seeds(keys, layer, site), shape, rate))


def test_dropout_equals_numpy():
    x = np.random.default_rng(0).normal(size=(8, 7, 3, 9)).astype(np.float32)
    words = np.asarray(jax.random.key_data(eight_keys()))
    expected = x * reference.kept(words, 4, 3, x.shape[1:], 0.3) / (1 - round(0.3 * 2**24) / 2**24)
    np.testing.assert_allclose(
        dropout(jnp.asarray(x), eight_keys(), 4, 3, 0.3), expected, rtol=1e-6
    )


def test_the_gradient_has_the_same_mask():
    x = jnp.ones((8, 5, 9))
    gradient = jax.grad(lambda x: (3 * dropout(x, eight_keys(), 2, 1, 0.4)).sum())(x)
    np.testing.assert_allclose(gradient, 3 * dropout(x, eight_keys(), 2, 1, 0.4), rtol=1e-6)


def test_a_mask_depends_only_on_the_key_of_its_row():
    x = jnp.ones((8, 33, 7))
    whole = dropout(x, eight_keys(), 1, 1, 0.3)
    np.testing.assert_array_equal(dropout(x[2:5], eight_keys()[2:5], 1, 1, 0.3), whole[2:5])
    np.testing.assert_array_equal(dropout(x, None, 1, 1, 0.3), x)
    np.testing.assert_array_equal(dropout(x, eight_keys(), 1, 1, 0.0), x)


def test_no_mask_is_saved_for_the_backward_pass():
    def total(x):
        return dropout(jnp.sin(x), eight_keys(), 1, 1, 0.3).sum()

    _, backward = jax.vjp(total, jnp.ones((8, 64, 64)))
    saved_types = {leaf.dtype for leaf in jax.tree.leaves(backward) if leaf.size > 8}
    assert saved_types == {jnp.dtype("float32")}  # cosines


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.9])
def test_the_share_of_dropped_values_is_the_rate(rate):
    """The shares are within 4.5 standard deviations, in total and by row, head, query and key."""
    dropped = ~masks(eight_keys(), (4, 64, 128), rate)
    for axes in ((), (0,), (0, 1), (2,), (3,)):
        others = tuple(axis for axis in range(4) if axis not in axes)
        shares, count = dropped.mean(others), dropped.size / max(1, dropped.mean(others).size)
        spread = np.sqrt(rate * (1 - rate) / count)
        assert np.abs(shares - rate).max() < 4.5 * spread, axes
    np.testing.assert_allclose(
        dropout(jnp.ones((8, 4096)), eight_keys(), 0, 0, rate).mean(), 1, atol=0.05
    )


def correlation(a, b):
    """Returns the correlation of two masks, divided by its standard deviation for independent
    masks."""
    a, b = a - a.mean(), b - b.mean()
    return (a * b).mean() / (a.std() * b.std()) * np.sqrt(a.size)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_masks_are_independent(rate):
    """Compares neighbours along axes and diagonals, and different layers, sites and steps."""
    mask = 1.0 * masks(eight_keys(), (4, 64, 128), rate)
    for axis in range(4):
        for distance in (1, 2, 3):
            a, b = np.split(mask, [distance], axis)[1], np.split(mask, [-distance], axis)[0]
            assert abs(correlation(a, b)) < 4.5, (axis, distance)
    assert abs(correlation(mask[:, :, 1:, 1:], mask[:, :, :-1, :-1])) < 4.5
    assert abs(correlation(mask[:, :, 1:, :-1], mask[:, :, :-1, 1:])) < 4.5
    # Four corners of rectangles: they would depend on each other if hashes were sums over axes.
    signs = mask - mask.mean()
    corners = signs[:, :, 1:, 1:] * signs[:, :, :-1, 1:]
    assert abs(correlation(corners, signs[:, :, 1:, :-1] * signs[:, :, :-1, :-1])) < 4.5
    steps = jax.vmap(jax.random.fold_in, (0, None))(eight_keys(), 1)
    others = [masks(steps, (4, 64, 128), rate), masks(eight_keys(), (4, 64, 128), rate, layer=2)]
    others += [
        masks(eight_keys(), (4, 64, 128), rate, site=2),
        masks(eight_keys(), (4, 64, 128), rate, 2, 1),
    ]
    for other in others:
        assert abs(correlation(mask, 1.0 * other)) < 4.5


def test_keys_that_differ_in_one_bit_have_independent_masks():
    words = jnp.array([[0, 0], [0, 1], [1, 0], [0, 1 << 31], [1 << 31, 0]], jnp.uint32)
    by_key = 1.0 * masks(jax.random.wrap_key_data(words), (64, 128), 0.5)
    for i in range(5):
        for j in range(i):
            assert abs(correlation(by_key[i], by_key[j])) < 4.5
