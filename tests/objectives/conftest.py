"""A small model, and parameters that are not symmetric."""

import jax
import pytest
from random_rows import CORPUS, SIZE

from xlj.config import Model
from xlj.models import encoder


@pytest.fixture
def model():
    return Model(layers=2, hidden=32, heads=4, intermediate=64, positions=66, init_std=0.3)


@pytest.fixture
def params_of():
    """(model, objective) -> parameters, moved away from their initial zeros and ones."""

    def made(model, objective, seed=0):
        def moved():
            key = jax.random.key(seed)
            params = encoder.init(key, model, SIZE, len(CORPUS.languages))
            for name, make in objective.parts.items():
                params[name] = make(jax.random.fold_in(key, len(name)))
            leaves, structure = jax.tree.flatten(params)
            keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
            pairs = zip(leaves, keys, strict=True)
            return structure.unflatten([x + 0.1 * jax.random.normal(k, x.shape) for x, k in pairs])

        return jax.jit(moved)()

    return made


@pytest.fixture
def keys_of():
    return lambda rows, seed=0: jax.random.split(jax.random.key(seed), len(rows.tokens))
