"""A fixture: random parameters of several kinds, without a model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture
def drawn():
    """A function (seed) -> random parameters or gradients. Biases and scales have no weight
    decay."""

    def of_seed(seed):
        rng = np.random.default_rng(seed)
        shapes = {"word": (7, 3), "norm": {"bias": (3,), "scale": (3,)}}
        return jax.tree.map(
            lambda shape: jnp.asarray(rng.normal(size=shape), jnp.float32),
            shapes,
            is_leaf=lambda leaf: isinstance(leaf, tuple),
        )

    return of_seed
