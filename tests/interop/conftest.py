"""Fixtures: models with random weights, a small vocabulary, and exported Hugging Face folders."""

import itertools

import jax
import numpy as np
import pytest

from xlj import phrasebook
from xlj.config import Model
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import to_hugging_face
from xlj.io import atomic
from xlj.models import encoder
from xlj.objectives.mlm.head import init_prediction
from xlj.objectives.supervised import loss as supervised
from xlj.sharding.trees import named_leaves

MODEL = Model(layers=3, hidden=32, heads=4, intermediate=48, positions=42)


@pytest.fixture
def model():
    """A model whose axes all have different sizes."""
    return MODEL


@pytest.fixture(scope="session")
def vocabulary():
    """A vocabulary of 400 English and Turkish pieces."""
    lines = {
        name: list(itertools.islice(phrasebook.text_lines(name), 500)) for name in ("en", "tr")
    }
    return Vocabulary(vocabulary_training.train(lines, {"en": 1, "tr": 1}, 400, 1.0))


@pytest.fixture(scope="session")
def params_of():
    """A function that draws all parameters of a model at random, including norms and biases.

    Its arguments are the model, the vocabulary size, whether the model has a head for masked
    tokens, and the kind of task and the labels of a task head.
    """

    def make(model, size, head=True, kind="", labels=()):
        key = jax.random.key(0)

        def init():
            params = encoder.init(key, model, size, 0)
            if head:
                params["prediction_head"] = init_prediction(key, model, size)
            if kind:
                task_head = supervised.init_head(kind, model, len(labels), key)
                params[supervised.head_of(kind)] = task_head
            return params

        rng = np.random.default_rng(7)

        def draw(leaf):
            return rng.normal(0, leaf.shape[-1] ** -0.5, leaf.shape).astype(np.float32)

        return jax.tree.map(draw, jax.eval_shape(init))

    return make


@pytest.fixture
def folder_of(tmp_path, vocabulary, params_of):
    """A function that exports a random model, with or without a head for masked tokens.

    It returns the folder and the parameters.
    """

    def make(model=MODEL, head=True):
        params = params_of(model, vocabulary.size, head)
        leaves = named_leaves(params)
        exported = to_hugging_face.plan(leaves, model, vocabulary, headless=False)
        with atomic.new_folder(tmp_path / "exported") as folder:
            to_hugging_face.write(folder, exported, leaves, model, vocabulary)
        return tmp_path / "exported", params

    return make


@pytest.fixture(scope="session")
def code_cache(tmp_path_factory):
    """A code cache of transformers for this session.

    All tests share it, because Python finds a package in one place only.
    """
    transformers = pytest.importorskip("transformers", reason="pip install '.[parity]'")
    folder = tmp_path_factory.mktemp("code_cache")
    with pytest.MonkeyPatch.context() as patch:
        for module in (transformers.dynamic_module_utils, transformers.utils):
            patch.setattr(module, "HF_MODULES_CACHE", str(folder))
        patch.syspath_prepend(folder)
        yield folder
