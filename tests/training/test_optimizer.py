"""Layer-wise decay of the learning rate."""

import jax
import jax.numpy as jnp
import numpy as np

from xlj.config import Model
from xlj.models import encoder
from xlj.training import optimizer


def test_each_layer_has_less_than_the_one_above_it():
    model = Model(layers=3, hidden=8, heads=2, intermediate=16, positions=10, position_bias="gated")
    params = encoder.init(jax.random.key(0), model, 20, 1)
    params["classification_head"] = {"output": {"kernel": jnp.ones((8, 2))}}
    ones = jax.tree.map(jnp.ones_like, params)
    scaled = optimizer.by_layer(ones, 0.5)
    for leaf in jax.tree.leaves(scaled["layers"]):
        for layer, factor in enumerate((1 / 8, 1 / 4, 1 / 2)):
            np.testing.assert_allclose(leaf[layer], factor)
    for part in ("embeddings", "position_bias"):
        assert all((leaf == 1 / 16).all() for leaf in jax.tree.leaves(scaled[part]))
    assert (scaled["classification_head"]["output"]["kernel"] == 1).all()
    assert optimizer.by_layer(ones, 1.0) is ones
