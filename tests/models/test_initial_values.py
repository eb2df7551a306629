"""Initial parameters: their names, their shapes, and values that never change for a seed."""

from functools import partial

import jax
import numpy as np

from xlj.config import Model
from xlj.models import encoder
from xlj.objectives.contrast.head import init_projection
from xlj.objectives.dwa.loss import init_pointer
from xlj.objectives.mlm.head import init_prediction
from xlj.objectives.rtd.loss import init_detection
from xlj.objectives.supervised.head import (
    PAIR_FEATURES,
    init_classification,
    init_token_classification,
)

MODEL = Model(
    layers=2, hidden=8, heads=2, intermediate=12, positions=10, init_std=0.5, norm="pre",
    position_bias="gated", position_buckets=8, position_distance=12, token_types=2,
    language_embeddings="all",
)  # fmt: skip
HEADS = {
    "prediction": partial(init_prediction, model=MODEL, vocabulary_size=20),
    "detection": partial(init_detection, model=MODEL),
    "classification": partial(init_classification, model=MODEL, classes=3),
    "pair_classification": partial(
        init_classification, model=MODEL, classes=3, vectors=PAIR_FEATURES
    ),
    "token_classification": partial(init_token_classification, model=MODEL, classes=5),
    "pointer": partial(init_pointer, model=MODEL),
    "projection": partial(init_projection, model=MODEL),
}

LAST = {  # name: (shape, last value); a last value of 0 or 1 is the value of the whole array
    "classification/dense/bias": ((8,), 0),
    "classification/dense/kernel": ((8, 8), 0.16431),
    "classification/output/bias": ((3,), 0),
    "classification/output/kernel": ((8, 3), -0.43163),
    "detection/dense/bias": ((8,), 0),
    "detection/dense/kernel": ((8, 8), 0.16431),
    "detection/output/bias": ((1,), 0),
    "detection/output/kernel": ((8, 1), -0.15505),
    "encoder/embeddings/language": ((3, 8), -0.35472),
    "encoder/embeddings/position": ((10, 8), 0.73764),
    "encoder/embeddings/token_type": ((2, 8), 0.27183),
    "encoder/embeddings/word": ((20, 8), -0.27042),
    "encoder/final_norm/bias": ((8,), 0),
    "encoder/final_norm/scale": ((8,), 1),
    "encoder/layers/attention/gates/kernel": ((2, 4, 2), -0.26212),
    "encoder/layers/attention/gates/scale": ((2, 2), 1),
    "encoder/layers/attention/key/bias": ((2, 8), 0),
    "encoder/layers/attention/key/kernel": ((2, 8, 8), -0.066618),
    "encoder/layers/attention/output/bias": ((2, 8), 0),
    "encoder/layers/attention/output/kernel": ((2, 8, 8), 0.41562),
    "encoder/layers/attention/query/bias": ((2, 8), 0),
    "encoder/layers/attention/query/kernel": ((2, 8, 8), -0.034349),
    "encoder/layers/attention/value/bias": ((2, 8), 0),
    "encoder/layers/attention/value/kernel": ((2, 8, 8), 0.079163),
    "encoder/layers/attention_norm/bias": ((2, 8), 0),
    "encoder/layers/attention_norm/scale": ((2, 8), 1),
    "encoder/layers/feed_forward/inner/bias": ((2, 12), 0),
    "encoder/layers/feed_forward/inner/kernel": ((2, 8, 12), -0.5386),
    "encoder/layers/feed_forward/outer/bias": ((2, 8), 0),
    "encoder/layers/feed_forward/outer/kernel": ((2, 12, 8), -0.13915),
    "encoder/layers/feed_forward_norm/bias": ((2, 8), 0),
    "encoder/layers/feed_forward_norm/scale": ((2, 8), 1),
    "encoder/position_bias/table": ((8, 2), 0.52649),
    "pair_classification/dense/bias": ((8,), 0),
    "pair_classification/dense/kernel": ((32, 8), 0.7823),
    "pair_classification/output/bias": ((3,), 0),
    "pair_classification/output/kernel": ((8, 3), -0.43163),
    "pointer/key/bias": ((8,), 0),
    "pointer/key/kernel": ((8, 8), 0.45893),
    "pointer/query/bias": ((8,), 0),
    "pointer/query/kernel": ((8, 8), 0.015705),
    "prediction/bias": ((20,), 0),
    "prediction/dense/bias": ((8,), 0),
    "prediction/dense/kernel": ((8, 8), 0.16431),
    "prediction/norm/bias": ((8,), 0),
    "prediction/norm/scale": ((8,), 1),
    "projection/kernel": ((8, 8), 0.70628),
    "token_classification/output/bias": ((5,), 0),
    "token_classification/output/kernel": ((8, 5), -1.1672),
}


def initial_values():
    """Returns {name: values} of an encoder and of every head."""

    def init():
        rng = jax.random.key(0)
        params = {"encoder": encoder.init(rng, MODEL, 20, 3)}
        return params | {name: make(rng) for name, make in HEADS.items()}

    leaves, _ = jax.tree_util.tree_flatten_with_path(jax.jit(init)())
    return {"/".join(key.key for key in path): np.asarray(leaf) for path, leaf in leaves}


def test_initial_values_never_change():
    """Biases are 0 and scales 1; other parameters have a standard deviation of `init_std`."""
    leaves = initial_values()
    assert {name: values.shape for name, values in leaves.items()} == {
        name: shape for name, (shape, _) in LAST.items()
    }
    normal = []
    for name, values in leaves.items():
        np.testing.assert_allclose(values.flat[-1], LAST[name][1], rtol=1e-4, err_msg=name)
        leaf = name.rpartition("/")[2]
        if leaf in ("bias", "scale"):
            assert (values == {"bias": 0, "scale": 1}[leaf]).all(), name
        else:
            normal.append(values.ravel())
            assert len(np.unique(values)) == values.size, name
    np.testing.assert_allclose(np.concatenate(normal).std(), MODEL.init_std, rtol=0.05)
