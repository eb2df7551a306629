"""The NumPy encoder computes what transformers' ModernBERT, EuroBERT and gte compute."""

import modern_models
import numpy as np
import pytest
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


@pytest.fixture
def their_model():
    """Makes a model of transformers with random weights, norms and biases too.

    The standard deviation is `width` by the root of the hidden size, 2.4 for 0.3 of 64.
    """
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

    def make(name, width=2.4):
        kind = name.partition("-")[0]
        config = getattr(transformers, f"{kind}Config")(**modern_models.config(name))
        model = getattr(transformers, f"{kind}ForMaskedLM")(config).eval()
        torch.manual_seed(5)
        with torch.no_grad():
            for part, parameter in model.named_parameters():
                mean = float("norm" in part.lower() and part.endswith("weight"))
                noise = torch.randn_like(parameter) * width * config.hidden_size**-0.5
                parameter.copy_(mean + noise)
        return model

    return make


@pytest.fixture
def in_float64(monkeypatch):
    """Makes transformers compute in float64 what it casts to float32: angles, RMSNorm, queries."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def theirs(model, examples):
    """What a model of transformers computes of examples, padded to the longest: the hidden states
    [layers + 1, length, hidden] and logits [length, vocabulary] of each."""
    import torch

    lengths = [len(example) for example in examples]
    tokens = np.stack([np.pad(row, (0, max(lengths) - len(row))) for row in examples])
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    with torch.no_grad():
        output = model(
            input_ids=torch.tensor(tokens),
            attention_mask=torch.tensor(mask.astype(int)),
            output_hidden_states=True,
        )
    states = np.stack([state.numpy() for state in output.hidden_states])
    return [(states[:, row, :n], output.logits.numpy()[row, :n]) for row, n in enumerate(lengths)]


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


def assert_close(found, wanted, tolerance):
    """Hidden states of every index and logits: the largest difference by the largest value."""
    for (states, logits), (their_states, their_logits) in zip(found, wanted, strict=True):
        assert len(states) == len(their_states)
        for ours, theirs in [*zip(states, their_states, strict=True), (logits, their_logits)]:
            assert abs(ours - theirs).max() < tolerance * abs(theirs).max()


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_equals_transformers(name, their_model, in_float64):
    model = their_model(name).double()
    examples, computed = ours(name, model)
    alone = [theirs(model, [example])[0] for example in examples]
    assert_close(computed, alone, 1e-10)
    assert_close(computed, theirs(model, examples), 1e-10)


@pytest.mark.parametrize("name", ["ModernBert-medium", "EuroBert-medium", "Gte-medium"])
def test_the_reference_equals_transformers_in_float32(name, their_model):
    """Narrower weights: those above amplify float32's rounding to 1e-2 in gte."""
    model = their_model(name, width=1.0)
    examples, computed = ours(name, model)
    assert_close(computed, theirs(model, examples), 1e-5)
