"""A sentence's vector depends on nothing but the sentence, the layer and the pooling."""

import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import ConfigError
from xlj.data.layout import BOS, EOS
from xlj.downstream.sentence_vectors import Embedder
from xlj.models import encoder

SENTENCES = ["The cat sleeps.", "", "Maria is reading a book in the garden.", "Good morning!"]


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_vectors_equal_the_encoders_of_each_sentence_alone(pooling, random_encoder):
    embedder = Embedder(random_encoder, (0, 2), pooling)
    found = embedder.embed(SENTENCES)
    assert found.shape == (2, 4, 32) and embedder.cut == 0
    for index, sentence in enumerate(SENTENCES):
        ids = random_encoder.vocabulary.encode_batch([sentence])[0]
        tokens = jnp.asarray([[BOS, *ids, EOS]])
        ones = jnp.ones_like(tokens)
        inputs = encoder.Inputs(tokens, jnp.arange(tokens.shape[1])[None], ones, ones)
        every = encoder.apply(random_encoder.params, random_encoder.model, inputs, all_layers=True)
        for place, layer in enumerate((0, 2)):
            hidden = every[layer][0]
            text = hidden[1:-1].mean(0) if len(ids) else jnp.zeros(32)
            wanted = text if pooling == "mean" else hidden[0]
            np.testing.assert_allclose(found[place, index], wanted, rtol=1e-4, atol=1e-5)


def test_long_sentences_are_cut_and_counted(random_encoder):
    embedder = Embedder(random_encoder, (1,))
    long = "a b c d e f g h " * 20
    vectors = embedder.embed([long, "short", long + "and more"])
    assert embedder.cut == 2
    np.testing.assert_allclose(vectors[0, 0], vectors[0, 2], rtol=1e-5, atol=1e-6)


def test_a_layer_that_is_not_there_is_refused(random_encoder):
    with pytest.raises(ConfigError, match="no layer 4; the model has layers 0 to 3"):
        Embedder(random_encoder, (4,))
