"""The encoder with the options of ModernBERT, EuroBERT and gte against the NumPy encoder, which
equals transformers' classes (tests/interop/test_modern_models.py)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import encoder as reference
from references import heads as reference_heads
from references.families import MODELS, VOCABULARY, drawn, options
from references.layout import of_lengths

from xlj.config import Model
from xlj.models import encoder
from xlj.objectives.mlm.head import predict

PACKED, LENGTH = ((170,), (100, 66), (65, 64, 5)), 180
"""Lengths of the examples of each row: at the edge of the window and beyond, with padding that is
farther from any token than the window."""


def model_of(name, **changes):
    values = {**vars(options(name)), **changes}
    return Model(positions=LENGTH + 2, init_std=0.3, **values)


def as_float32(tree):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), tree)


def places_of(rows=PACKED):
    """Returns examples, sides and positions; the second side begins in the middle of an example."""
    example, side, position = of_lengths(rows, LENGTH)
    return example, np.where(example, position % 50 > 25, 0), position


def inputs_of(tokens, places, languages=None):
    example, side, position = (jnp.asarray(each, jnp.int32) for each in places)
    return encoder.Inputs(
        jnp.asarray(tokens, jnp.int32), position, example, example, languages, side
    )


def actual_and_expected(model, width=1.0, seed=0, layers=None):
    """Returns hidden vectors of every layer and logits, of xlj and of the reference."""
    params, head = drawn(model, seed, width)
    rng, places = np.random.default_rng(1), places_of()
    tokens = np.where(places[0], rng.integers(4, VOCABULARY, places[0].shape), 0)
    expected = reference.encode(params, model, tokens, places=places)
    word = params["embeddings"]["word"]
    logits = reference_heads.prediction(head, word, model, expected[-1])

    @jax.jit
    def xlj_outputs(params, head, inputs):
        layers_of_encoder = encoder.apply(params, model, inputs, all_layers=True)
        vectors, table, bias = predict(
            head, params["embeddings"]["word"], model, layers_of_encoder[-1]
        )
        return layers_of_encoder, jnp.matmul(vectors, table.T, precision="highest") + bias

    actual = xlj_outputs(as_float32(params), as_float32(head), inputs_of(tokens, places))
    return actual, (expected, logits), places[0] > 0


def assert_close(actual, expected, real, tolerance=1e-5):
    """Checks the largest error at real tokens, relative to the largest value, in each layer."""
    for one, other in zip([*actual[0], actual[1]], [*expected[0], expected[1]], strict=True):
        assert np.isfinite(np.asarray(one)).all(), "padding must be finite too"
        one, other = np.asarray(one, np.float64)[real], other[real]
        assert np.abs(one - other).max() < tolerance * np.abs(other).max()


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_and_the_logits_equal_the_reference(name):
    actual, expected, real = actual_and_expected(model_of(name))
    assert_close(actual, expected, real)


COMBINED = {
    "languages and types": ("ModernBert-small", {"token_types": 2, "pair_marks": ("types",)}),
    "restart": ("ModernBert-medium", {"pair_marks": ("positions",)}),
    "gated bias": (
        "ModernBert-small",
        {"position_bias": "gated", "position_buckets": 8, "position_distance": 30},
    ),
    "t5 bias, grouped": (
        "EuroBert-small",
        {"position_bias": "t5", "position_buckets": 8, "position_distance": 30},
    ),
    "local and post-norm": ("Gte-small", {"local_attention": 30, "full_attention_every": 2}),
    "local and grouped": (
        "EuroBert-small",
        {"local_attention": 31, "full_layers": ("0", "3"), "rotary_local_base": 50.0},
    ),
    "middle norm": ("ModernBert-small", {"middle_norm": True}),
    "old positions": (
        "ModernBert-small",
        {"absolute_positions": True, "rotary_base": 0.0, "rotary_local_base": 0.0},
    ),
    "unrolled": ("ModernBert-large", {"scan_layers": False}),
    "computed again": ("ModernBert-large", {"remat": "all"}),
    "one layer": ("ModernBert-small", {"layers": 1}),
}


@pytest.mark.parametrize("case", COMBINED)
def test_options_combine(case):
    name, changes = COMBINED[case]
    actual, expected, real = actual_and_expected(model_of(name, **changes))
    assert_close(actual, expected, real)


@pytest.mark.parametrize("layers", [1, 2])
def test_no_parameter_is_empty(layers):
    """The first layer has no norm before attention, and checkpoints cannot have empty arrays."""
    result = jax.eval_shape(
        lambda: encoder.init(jax.random.key(0), model_of("ModernBert-small", layers=layers), 50, 1)
    )
    assert all(leaf.size for leaf in jax.tree.leaves(result))
    assert ("attention_norm" in result["layers"]) == (layers > 1)
    cut = jax.eval_shape(lambda p: encoder.first_layers(p, model_of("ModernBert-small"), 1), result)
    assert all(leaf.size for leaf in jax.tree.leaves(cut))
