"""The NumPy encoder equals ModernBERT, EuroBERT and gte of transformers."""

import modern_models
import numpy as np
import pytest
from modern_models import assert_close, in_float64, their_model, theirs
from references.encoder import encode
from references.families import MODELS, VOCABULARY, options
from references.heads import prediction
from references.layout import of_lengths
from references.parameters import shapes

pytestmark = pytest.mark.parity

PACKED = ((300,), (130, 129), (65, 64, 5))
"""The lengths of the examples of each row: inside the window of 64 to each side, at its edge and
beyond."""

LENGTH = 300


def ours(name, model):
    """The examples of `PACKED`, and the hidden states and logits of each in its packed row."""
    state = {part: tensor.numpy() for part, tensor in model.state_dict().items()}
    params, head = modern_models.named(name, state)
    mine = options(name)
    assert shape_of(params) == shapes(mine, VOCABULARY)
    rng = np.random.default_rng(0)
    places = of_lengths(PACKED, LENGTH)
    tokens = np.where(places[0], rng.integers(4, VOCABULARY, places[0].shape), 0)
    every = encode(params, mine, tokens, places=places)
    assert np.isfinite(every).all()
    logits = prediction(head, params["embeddings"]["word"], mine, every[-1])
    examples, computed = [], []
    for row, lengths in enumerate(PACKED):
        for number in range(1, len(lengths) + 1):
            at = places[0][row] == number
            examples.append(tokens[row, at])
            computed.append((every[:, row, at], logits[row, at]))
    return examples, computed


def shape_of(tree):
    if isinstance(tree, dict):
        return {name: shape_of(part) for name, part in tree.items()}
    return tree.shape


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_equals_transformers(name):
    with in_float64():  # including buffers of frequencies
        model = their_model(name).double()
        examples, computed = ours(name, model)
        alone = [theirs(model, [example])[0] for example in examples]
        assert_close(computed, alone, 1e-10)
        assert_close(computed, theirs(model, examples), 1e-10)


@pytest.mark.parametrize("name", ["ModernBert-medium", "EuroBert-medium", "Gte-medium"])
def test_the_reference_equals_transformers_in_float32(name):
    """Small weights, because those above amplify float32's rounding to 1e-2 in gte."""
    model = their_model(name, width=1.0)
    examples, computed = ours(name, model)
    assert_close(computed, theirs(model, examples), 1e-5)
