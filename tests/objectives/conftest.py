"""Rows of every kind with random tokens, a small model, and parameters that are not symmetric."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import Model
from xlj.data import packing
from xlj.data.corpus import Corpus
from xlj.models import encoder
from xlj.objectives.rows import Rows

SIZE = 60
CORPUS = Corpus(SIZE, ("en", "de", "sw"), (100, 50, 20))


def ragged(rng, count, low, high):
    lengths = rng.integers(low, high, count)
    return packing.Ragged(rng.integers(4, SIZE - 1, lengths.sum()).astype(np.int32), lengths)


def rows_of(kind, seed=0, count=24, length=48):
    """Rows [n, length] of a kind, with every side in a language of its own."""
    rng, dtype = np.random.default_rng(seed), np.dtype(np.uint16)
    first, second = ragged(rng, count, 1, 9), ragged(rng, count, 1, 9)
    if kind == "text":
        packed = packing.text(first, np.arange(count) // 3, length, dtype)
    elif kind == "pairs":
        packed = packing.pairs(first, second, length, dtype)
    elif kind == "bitext":
        packed = packing.bitext(first, second, length, dtype)
    else:
        packed = packing.sentences(first, length, dtype, mask=SIZE - 1)
    languages = rng.integers(0, 3, (len(packed.rows), 2))
    if kind in ("text", "sentences"):
        languages[:, 1] = languages[:, 0]
    return Rows(jnp.asarray(packed.rows, jnp.int32), jnp.asarray(languages, jnp.int32))


@pytest.fixture
def model():
    return Model(layers=2, hidden=32, heads=4, intermediate=64, positions=66, init_std=0.3)


@pytest.fixture
def params_of():
    """(model, objective) -> parameters, moved away from their initial zeros and ones."""

    def made(model, objective, seed=0):
        key = jax.random.key(seed)
        params = encoder.init(key, model, SIZE, len(CORPUS.languages))
        for name, make in objective.parts.items():
            params[name] = make(jax.random.fold_in(key, len(name)))
        leaves, structure = jax.tree.flatten(params)
        keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
        moved = [x + 0.1 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
        return jax.tree.unflatten(structure, moved)

    return made


@pytest.fixture
def keys_of():
    return lambda rows, seed=0: jax.random.split(jax.random.key(seed), len(rows.tokens))
