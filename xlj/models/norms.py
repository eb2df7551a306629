"""Norm layers, in float32: LayerNorm with and without a bias, and RMSNorm."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models.lowering import with_gradient


class Norm(nn.Module):
    """A model's norm over the last axis, with the parameters of `norm_parameters`."""

    model: Model

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps x, float [..., hidden] -> float32 [..., hidden]."""
        scale, bias = norm_parameters(self, self.model)
        return norm(x.astype(jnp.float32), scale, bias, self.model)


def norm_parameters(module: nn.Module, model: Model) -> tuple[jax.Array, jax.Array | None]:
    """Declares the parameters of a module's norm, and returns (scale, bias).

    `scale` float32 [hidden] starts at 1. `bias` float32 [hidden] starts at 0; it is None unless
    `model.norm_type=layer`.
    """
    scale = module.param("scale", nn.initializers.ones, (model.hidden,))
    if model.norm_type != "layer":
        return scale, None
    return scale, module.param("bias", nn.initializers.zeros, (model.hidden,))


def norm(x: jax.Array, scale: jax.Array, bias: jax.Array | None, model: Model) -> jax.Array:
    """Computes LayerNorm or RMSNorm, by `model.norm_type`.

    Args:
      x: float32 [..., hidden].
      scale: float32 [hidden].
      bias: float32 [hidden]; None for LayerNorm without a bias, and for RMSNorm.

    Returns:
      float32 [..., hidden].
    """
    check(
        "norm",
        x=("float32 [..., hidden]", x),
        scale=("float32 [hidden]", scale),
        bias=("float32 [hidden]", bias),
    )
    if model.norm_type == "rms":
        return _rms_norm(x, scale, model.layer_norm_epsilon, jnp.dtype(model.dtype))
    return _layer_norm(x, scale, bias, model.layer_norm_epsilon)


SavedLayerNorm = tuple[jax.Array, jax.Array, jax.Array | None, jax.Array, jax.Array]
"""Saved by LayerNorm for the backward pass: x, scale, bias, and the mean and the reciprocal
standard deviation of each vector, float32 [..., 1] each."""


def _forward(
    x: jax.Array, scale: jax.Array, bias: jax.Array | None, epsilon: float
) -> tuple[jax.Array, SavedLayerNorm]:
    """Computes LayerNorm (Ba et al., 2016) of x, float32 [..., hidden]."""
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    factor = jax.lax.rsqrt(variance + epsilon)
    y = (x - mean) * factor * scale
    return y if bias is None else y + bias, (x, scale, bias, mean, factor)


def _backward(
    epsilon: float, saved: SavedLayerNorm, gradient: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Computes the gradients of x, scale and bias.

    They need only x and two numbers per vector, so x is the only wide array that is saved.
    """
    x, scale, bias, mean, factor = saved
    y, grad_y = (x - mean) * factor, gradient * scale
    along = (grad_y * y).mean(-1, keepdims=True)
    grad_x = (grad_y - grad_y.mean(-1, keepdims=True) - y * along) * factor
    others = tuple(range(x.ndim - 1))
    return grad_x, (gradient * y).sum(others), None if bias is None else gradient.sum(others)


_layer_norm = with_gradient(_forward, _backward, static=(3,))


def _forward_rms(
    x: jax.Array, scale: jax.Array, epsilon: float, dtype: jnp.dtype
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    """Computes RMSNorm (Zhang and Sennrich, 2019) of x, float32 [..., hidden].

    As in EuroBERT's released code, normalised vectors are rounded to the dtype of products before
    the multiplication by `scale`.
    """
    factor = jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon)
    return (x * factor).astype(dtype).astype(jnp.float32) * scale, (x, scale, factor)


def _backward_rms(
    epsilon: float,
    dtype: jnp.dtype,
    saved: tuple[jax.Array, jax.Array, jax.Array],
    gradient: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    x, scale, factor = saved
    y, grad_y = x * factor, gradient * scale
    grad_x = (grad_y - y * (grad_y * y).mean(-1, keepdims=True)) * factor
    return grad_x, (gradient * y).sum(tuple(range(x.ndim - 1)))


_rms_norm = with_gradient(_forward_rms, _backward_rms, static=(2, 3))
