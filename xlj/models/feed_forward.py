"""The feed-forward sub-layer of a block."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.models.activations import geglu, gelu, swiglu
from xlj.models.block import Context
from xlj.models.dense import Weights, linear

ACTIVATIONS = {"gelu": gelu, "geglu": geglu, "swiglu": swiglu}
"""The activation for each value of `model.feed_forward`. The gated ones (geglu, swiglu) return half
the width of their input."""


class FeedForward(nn.Module):
    """Two linear layers with the activation `model.feed_forward` between them.

    The kernel `inner` of a gated layer has two halves side by side: the half for the activation,
    then the half for the factor. The second layer adds the bias of the first layer and computes the
    activation. So the sum of product and bias is never written to memory, and the backward pass
    needs only the product.
    """

    model: Model

    @nn.compact
    def __call__(self, x: jax.Array, _: Context) -> jax.Array:
        """Maps x, float [rows, length, hidden], to an array of the same shape in `model.dtype`."""
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
