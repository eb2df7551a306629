"""The feed-forward sub-layer of a block."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.models.block import Context
from xlj.models.dense import Weights, gelu, linear


class FeedForward(nn.Module):
    """Two linear layers with a GELU (exact) between them.

    The second layer adds the first one's bias, beside the GELU that it computes: so no array of
    [rows, length, intermediate] is written for the sum, and the backward pass keeps the product
    alone.
    """

    model: Model

    @nn.compact
    def __call__(self, x: jax.Array, _: Context) -> jax.Array:
        """[rows, length, hidden] -> the same, of the model's dtype."""
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        weights = partial(Weights, init_std=model.init_std)
        inner, inner_bias = weights(model.hidden, model.intermediate, name="inner")()
        outer, outer_bias = weights(model.intermediate, model.hidden, name="outer")()
        x = linear(x, inner, None, dtype, dtype)
        return linear(x, outer, outer_bias, dtype, dtype, gelu, shift=inner_bias)
