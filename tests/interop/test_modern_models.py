"""The NumPy reference encoder equals ModernBERT, EuroBERT and gte of transformers."""

import modern_models
import numpy as np
import pytest
from modern_models import assert_close, hf_outputs, in_float64, random_hf_model
from references.encoder import encode
from references.families import MODELS, VOCABULARY, options
from references.heads import prediction
from references.layout import of_lengths
from references.parameters import shapes

pytestmark = pytest.mark.parity

PACKED = ((300,), (130, 129), (65, 64, 5))
"""The lengths of the examples in each row.

They are below, at and above the edges of the attention window, which has 64 tokens to each side.
"""

LENGTH = 300


def reference_outputs(name, model):
    """Returns the examples of `PACKED`, and the reference's hidden states and logits of each.

    The reference computes the examples in their packed rows.
    """
    state = {part: tensor.numpy() for part, tensor in model.state_dict().items()}
    params, head = modern_models.convert_state_dict(name, state)
    sizes = options(name)
    assert shape_of(params) == shapes(sizes, VOCABULARY)
    rng = np.random.default_rng(0)
    places = of_lengths(PACKED, LENGTH)
    tokens = np.where(places[0], rng.integers(4, VOCABULARY, places[0].shape), 0)
    hidden = encode(params, sizes, tokens, places=places)
    assert np.isfinite(hidden).all()
    logits = prediction(head, params["embeddings"]["word"], sizes, hidden[-1])
    examples, outputs = [], []
    for row, lengths in enumerate(PACKED):
        for number in range(1, len(lengths) + 1):
            at = places[0][row] == number
            examples.append(tokens[row, at])
            outputs.append((hidden[:, row, at], logits[row, at]))
    return examples, outputs


def shape_of(tree):
    if isinstance(tree, dict):
        return {name: shape_of(part) for name, part in tree.items()}
    return tree.shape


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_equals_transformers(name):
    with in_float64():  # including the buffers of rotary frequencies
        model = random_hf_model(name).double()
        examples, outputs = reference_outputs(name, model)
        separate = [hf_outputs(model, [example])[0] for example in examples]
        assert_close(outputs, separate, 1e-10)
        assert_close(outputs, hf_outputs(model, examples), 1e-10)


@pytest.mark.parametrize("name", ["ModernBert-medium", "EuroBert-medium", "Gte-medium"])
def test_the_reference_equals_transformers_in_float32(name):
    """Weights are small, because in gte larger ones amplify rounding errors of float32 to 1e-2."""
    model = random_hf_model(name, width=1.0)
    examples, outputs = reference_outputs(name, model)
    assert_close(outputs, hf_outputs(model, examples), 1e-5)
