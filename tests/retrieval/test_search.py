"""Exact search equals a plain search for all block sizes, and needs little memory."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.retrieval import device_search, search


def vectors(seed, count, width=8):
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def plain_search(source, target, count, densities=None):
    """Sorts all scores in float64, highest first; ties go to the lowest index."""
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in map(np.float64, (source, target))]
    scores = unit[0] @ unit[1].T
    if densities:
        scores /= (densities[0][:, None] + densities[1]) / 2
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(scores, order, 1), order


@pytest.fixture(params=[(1, 1), (5, 3), (7, 16), (100, 100)], ids=str)
def blocks(request, monkeypatch):
    monkeypatch.setattr(search, "_ROWS", request.param[0])
    monkeypatch.setattr(search, "_COLUMNS", request.param[1])


@pytest.fixture(params=["jax", "numpy"], autouse=True)
def library(request, monkeypatch):
    """Searches with JAX, and as in a process that has not imported JAX."""
    if request.param == "numpy":
        monkeypatch.delitem(sys.modules, "jax")


@pytest.mark.parametrize("count", [1, 4, 17, 30])
def test_neighbours_equal_a_plain_search(blocks, count):
    source, target = vectors(0, 23), vectors(1, 17)
    result = search.neighbours(source, target, count)
    scores, order = plain_search(source, target, count)
    assert result.indices.shape == (23, min(count, 17))
    np.testing.assert_array_equal(result.indices, order)
    np.testing.assert_allclose(result.scores, scores, atol=1e-6)


def test_margins_equal_a_plain_search(blocks):
    source, target = vectors(2, 19), vectors(3, 26)
    densities = tuple(np.abs(vectors(4, n, 1)[:, 0]) + 0.1 for n in (19, 26))
    result = search.neighbours(source, target, 2, densities)
    scores, order = plain_search(source, target, 2, densities)
    np.testing.assert_array_equal(result.indices, order)
    np.testing.assert_allclose(result.scores, scores, rtol=1e-5)


def test_ties_go_to_the_first_target(blocks):
    # Vectors of four numbers, each 1 or -1: cosines are exact, and most are equal to others.
    source, target = (np.sign(vectors(seed, count, 4)) for seed, count in ((5, 20), (6, 60)))
    result = search.neighbours(source, target, 9)
    scores, order = plain_search(source, target, 9)
    assert (scores[:, 0] == scores[:, 1]).any()
    np.testing.assert_array_equal(result.indices, order)
    np.testing.assert_array_equal(result.scores, scores)


def test_ties_between_copies_go_to_the_first_copy():
    target = vectors(7, 300, 48)
    target[150:] = target[:150][::-1]
    result = search.neighbours(target + 0.1 * vectors(8, 300, 48), target, 1)
    assert result.indices.max() < 150


def test_float16_vectors_and_zero_vectors_have_neighbours():
    source, target = vectors(9, 6).astype(np.float16), np.zeros((3, 8), np.float16)
    result = search.neighbours(
        source, target, 3, (np.zeros(6, np.float32), np.zeros(3, np.float32))
    )
    assert np.isfinite(result.scores).all()
    np.testing.assert_array_equal(result.indices, np.tile([0, 1, 2], (6, 1)))


def test_temporary_memory_for_a_million_targets_is_a_few_blocks():
    rows, columns, width = search._ROWS, search._COLUMNS, 768
    lowered = device_search.nearest_on_device.lower(
        jax.ShapeDtypeStruct((rows, width), jnp.float32),
        jax.ShapeDtypeStruct((1_000_000, width), jnp.float32),
        None,
        4,
        columns,
    )
    memory = lowered.compile().memory_analysis()
    assert memory.temp_size_in_bytes < 5 * 4 * rows * columns
    assert memory.output_size_in_bytes < 1_000_000
