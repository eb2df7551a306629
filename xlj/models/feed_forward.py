"""The feed-forward sub-layer of a block."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.models.block import Context
from xlj.models.dense import Weights, geglu, gelu, linear, swiglu

ACTIVATIONS = {"gelu": gelu, "geglu": geglu, "swiglu": swiglu}
"""By `model.feed_forward`. Those of gated layers halve their input's width."""


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, as `model.feed_forward` says.

    The kernel `inner` of a gated layer has both of its halves side by side, the activated one
    first. The second layer adds the first one's bias, beside the activation that it computes: so no
    array of [rows, length, intermediate] is written for the sum, and the backward pass keeps the
    product alone.
    """

    model: Model

    @nn.compact
    def __call__(self, x: jax.Array, _: Context) -> jax.Array:
        """[rows, length, hidden] -> the same, of the model's dtype."""
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        weights = partial(Weights, init_std=model.init_std)
        width = model.intermediate * (1 if model.feed_forward == "gelu" else 2)
        has_inner, has_outer = "inner" in model.biases, "outer" in model.biases
        inner, shift = weights(model.hidden, width, has_bias=has_inner, name="inner")()
        of_outer = weights(model.intermediate, model.hidden, has_bias=has_outer, name="outer")
        outer, bias = of_outer()
        x = linear(x, inner, None, dtype, dtype)
        activation = ACTIVATIONS[model.feed_forward]
        return linear(x, outer, bias, dtype, dtype, activation, shift=shift)
