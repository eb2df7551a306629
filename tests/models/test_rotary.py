"""Rotary positions against complex numbers, and their invariances."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import Model
from xlj.models import rotary

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
    rotations = rotary.rotations(jnp.asarray(positions, jnp.int32), 12, 100.0, 1.5)
    actual = rotary.rotate(jnp.asarray(x, jnp.float32), rotations)
    # The angles are float32.
    np.testing.assert_allclose(actual, plain_rotation(x, positions, 100.0, 1.5), atol=2e-3)
    near = rotary.rotations(jnp.asarray(positions % 50, jnp.int32), 12, 100.0, 1.5)
    actual = rotary.rotate(jnp.asarray(x, jnp.float32), near)
    np.testing.assert_allclose(actual, plain_rotation(x, positions % 50, 100.0, 1.5), atol=1e-5)


def test_scores_depend_only_on_distances():
    rng = np.random.default_rng(0)
    query, key = jnp.asarray(rng.normal(size=(2, 1, 1, 1, 12)), jnp.float32)

    def score(i, j):
        at = [rotary.rotations(jnp.full((1, 1), n, jnp.int32), 12, 100.0, 1.0) for n in (i, j)]
        return float((rotary.rotate(query, at[0]) * rotary.rotate(key, at[1])).sum())

    assert score(3, 8) == pytest.approx(score(103, 108), abs=1e-4)
    assert abs(score(3, 8) - score(8, 3)) > 1e-2


def test_angles_are_exact_in_bfloat16():
    """Products may be rounded, but angles may not: bfloat16 cannot represent position 257."""
    x = jnp.ones((1, 1, 1, 4), jnp.bfloat16)
    rotated = [
        rotary.rotate(x, rotary.rotations(jnp.full((1, 1), n, jnp.int32), 4, 10.0, 1.0))
        for n in (256, 257)
    ]
    assert all(end.dtype == jnp.bfloat16 for end in rotated)
    assert np.abs(np.asarray(rotated[0] - rotated[1], np.float32)).max() > 0.1


def test_local_layers_have_their_own_base():
    positions = jnp.asarray([[0, 1, 2, 7]], jnp.int32)
    both = rotary.of_layers(dataclasses.replace(MODEL, rotary_local_base=10.0), positions)
    for is_local, base in ((False, 100.0), (True, 10.0)):
        expected = rotary.rotations(positions, 12, base, 1.5)
        jax.tree.map(np.testing.assert_array_equal, both[is_local], expected)
    same = rotary.of_layers(MODEL, positions)
    assert same[True] is same[False]
    assert rotary.of_layers(dataclasses.replace(MODEL, rotary_base=0.0), positions) == {}
