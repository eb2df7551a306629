"""Models with random weights, and folders of Hugging Face's made of them."""

import dataclasses

import jax
import pytest

from xlj.config import Model
from xlj.data.vocabulary import Vocabulary
from xlj.interop import exporting
from xlj.models import encoder, heads
from xlj.training.partitioning import named_leaves

MODEL = Model(layers=3, hidden=32, heads=4, intermediate=48, positions=42, init_std=0.3)


@pytest.fixture
def model():
    """Sizes that no two axes share."""
    return MODEL


@pytest.fixture
def vocabulary(store):
    """The vocabulary of the test corpus."""
    return Vocabulary.load(store.vocabulary_file)


@pytest.fixture
def params_of():
    """(model, vocabulary size, with head) -> parameters, none of them at a value it starts from."""

    def make(model, size, head=True):
        key = jax.random.key(7)
        params = encoder.init(key, model, size, 0)
        if head:
            params["prediction_head"] = heads.init_prediction(key, model, size)
        leaves, structure = jax.tree.flatten(params)
        keys = jax.random.split(key, len(leaves))
        noise = [0.1 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(structure, [x + n for x, n in zip(leaves, noise, strict=True)])

    return make


@pytest.fixture
def folder_of(tmp_path, vocabulary, params_of):
    """(model, with head) -> (a folder that xlj exported, its parameters)."""

    def make(model=MODEL, head=True):
        params = params_of(model, vocabulary.size, head)
        leaves = named_leaves(params)
        exported = exporting.plan(leaves, model, vocabulary, headless=False)
        with exporting.new_folder(tmp_path / "exported") as folder:
            exporting.write(folder, exported, leaves, model, vocabulary)
        return tmp_path / "exported", params

    return make


@pytest.fixture
def typed():
    """The model with two token types."""
    return dataclasses.replace(MODEL, token_types=2)
