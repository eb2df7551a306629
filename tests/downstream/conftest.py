"""A tiny encoder that knows what it should align."""

import jax
import jax.numpy as jnp
import pytest

from xlj.config import Model
from xlj.data.vocabulary import Vocabulary
from xlj.downstream.pretrained import Pretrained
from xlj.models import encoder


@pytest.fixture(scope="session")
def vocabulary(corpus):
    """400 pieces of the corpus' languages."""
    import io

    import sentencepiece

    lines = [
        line
        for file in sorted((corpus / "mono").iterdir())
        for line in file.read_text("utf-8").split("\n")[:1000]
    ]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=400, minloglevel=2
    )
    return Vocabulary(model.getvalue())


@pytest.fixture(scope="session")
def random_encoder(vocabulary):
    """Random weights, three layers, 38 positions after the two of padding."""
    model = Model(layers=3, hidden=32, heads=2, intermediate=64, positions=40, init_std=0.2)
    return Pretrained(encoder.init(jax.random.key(0), model, vocabulary.size, 1), model, vocabulary)


@pytest.fixture(scope="session")
def copying_encoder(random_encoder):
    """Its layers change nothing much and positions are zero: a word is most like itself."""
    params = dict(random_encoder.params)
    params["embeddings"] = dict(params["embeddings"])
    params["embeddings"]["position"] = jnp.zeros_like(params["embeddings"]["position"])
    params["layers"] = jax.tree_util.tree_map_with_path(
        lambda path, x: x * 0 if "kernel" in str(path) else x, params["layers"]
    )
    return random_encoder._replace(params=params)
