"""Gradients above the limit of the global norm are scaled down to it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.optimizers.clipping import clip


@pytest.mark.parametrize("limit, factor", [(0.0, 1), (0.125, 0.25), (0.5, 1), (0.75, 1), (4.0, 1)])
def test_gradients_are_scaled_only_if_their_norm_exceeds_the_limit(limit, factor):
    """The global norm of the gradients is 0.5."""
    gradients = {"word": np.float32([[0.3, 0.0]]), "norm": {"bias": np.float32([0.0, -0.4])}}
    clipped, norm = clip(jax.tree.map(jnp.asarray, gradients), limit)
    np.testing.assert_allclose(norm, 0.5, rtol=1e-6)
    np.testing.assert_allclose(clipped["word"], factor * gradients["word"], rtol=1e-6)
    np.testing.assert_allclose(clipped["norm"]["bias"], factor * gradients["norm"]["bias"], 1e-6)


def test_gradients_of_zeros_stay_zeros():
    clipped, norm = clip({"word": jnp.zeros(3)}, 1.0)
    assert float(norm) == 0 and clipped["word"].tolist() == [0, 0, 0]
