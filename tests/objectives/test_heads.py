"""Every head against NumPy in float32, with dropout, and the size of errors in bfloat16."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import encoder as plain
from references import heads as reference

from xlj.config import Model
from xlj.models.block import FeedForward
from xlj.models.dropout import dropout
from xlj.objectives.contrast.head import init_projection, project
from xlj.objectives.dwa.loss import init_pointer, point
from xlj.objectives.mlm.head import init_prediction, predict
from xlj.objectives.rtd.loss import detect, init_detection
from xlj.objectives.supervised.head import (
    PAIR_FEATURES,
    classify,
    classify_tokens,
    init_classification,
    init_token_classification,
    pair_features,
)

MODEL = Model(layers=3, hidden=8, heads=2, intermediate=12, layer_norm_epsilon=1e-3, dropout=0.4)
KEYS = 4


def keys():
    return jax.random.split(jax.random.key(3), KEYS)


def dropped(x, site, rate=MODEL.dropout):
    layer = MODEL.layers + 1  # the number after the encoder's layers
    return np.asarray(dropout(jnp.asarray(x, jnp.float32), keys(), layer, site, rate), np.float64)


def vectors(*shape, seed=0):
    """Returns random values, large enough that an approximate GELU would differ."""
    return 2 * np.random.default_rng(seed).normal(size=shape)


def perturbed(params):
    leaves, structure = jax.tree.flatten(params)
    rng = np.random.default_rng(7)
    noisy = [jnp.asarray(x + rng.normal(0, 0.5, x.shape), jnp.float32) for x in leaves]
    return structure.unflatten(noisy)


ALL, ONE, OTHER = vectors(KEYS, 5, 8), vectors(KEYS, 8, seed=1), vectors(KEYS, 8, seed=2)
TABLE = vectors(20, 8, seed=3)


def logits(params, model, hidden):
    result, table, bias = predict(params, jnp.asarray(TABLE, jnp.float32), model, hidden)
    return result @ table.T + bias


HEADS = {
    "prediction": (
        lambda rng, model: init_prediction(rng, model, 20),
        lambda params, model: logits(params, model, jnp.asarray(ALL)),
        lambda params: reference.prediction(params, TABLE, MODEL, ALL),
    ),
    "detection": (
        init_detection,
        lambda params, model: detect(params, model, jnp.asarray(ALL)),
        lambda params: reference.detection(params, ALL),
    ),
    "classification": (
        lambda rng, model: init_classification(rng, model, 3),
        lambda params, model: classify(params, model, jnp.asarray(ALL)[:, 0], keys()),
        lambda params: reference.classification(params, ALL[:, 0], dropped),
    ),
    "pair_classification": (
        lambda rng, model: init_classification(rng, model, 3, PAIR_FEATURES),
        lambda params, model: classify(
            params, model, pair_features(jnp.asarray(ONE), jnp.asarray(OTHER)), keys()
        ),
        lambda params: reference.classification(
            params,
            np.concatenate([ONE, OTHER, abs(ONE - OTHER), ONE * OTHER], 1),
            dropped,
        ),
    ),
    "token_classification": (
        lambda rng, model: init_token_classification(rng, model, 5),
        lambda params, model: classify_tokens(params, model, jnp.asarray(ALL), 0.6, keys()),
        lambda params: plain.dense(params["output"], dropped(ALL, 0, 0.6)),
    ),
    "pointer": (
        init_pointer,
        lambda params, model: point(params, model, jnp.asarray(ALL), jnp.asarray(ALL)[:, :3]),
        lambda params: np.array(
            [[reference.pointer(params, q, row[:3]) for q in row] for row in ALL]
        ),
    ),
    "projection": (
        init_projection,
        lambda params, model: project(params, model, jnp.asarray(ALL)),
        lambda params: ALL @ params["kernel"],
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_equal_numpy(name):
    init, apply, expected = HEADS[name]
    params = perturbed(init(jax.random.key(0), MODEL))
    actual = apply(params, MODEL)
    np.testing.assert_allclose(actual, expected(plain.float64(params)), rtol=1e-4, atol=1e-4)
    half = apply(params, dataclasses.replace(MODEL, dtype="bfloat16"))
    assert half.dtype == jnp.float32 and 0 < jnp.abs(half - actual).max() < 2


def test_the_feed_forward_layer_equals_numpy():
    layer = FeedForward(MODEL)
    params = perturbed(layer.init(jax.random.key(0), jnp.asarray(ALL), None)["params"])
    actual = layer.apply({"params": params}, jnp.asarray(ALL), None)
    expected = plain.feed_forward(plain.float64(params), ALL)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
