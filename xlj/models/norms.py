"""Norms of vectors, in float32: LayerNorm with and without a bias, and RMSNorm."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check


class Norm(nn.Module):
    """The norm of a model over the last axis, with the parameters of `norm_parameters`."""

    model: Model

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., hidden] -> float32 [..., hidden]."""
        scale, bias = norm_parameters(self, self.model)
        return norm(x.astype(jnp.float32), scale, bias, self.model)


def norm_parameters(module: nn.Module, model: Model) -> tuple[jax.Array, jax.Array | None]:
    """The parameters `scale` and, as `model.norm_type` says, `bias` of a module's norm, float32
    [hidden] each."""
    scale = module.param("scale", nn.initializers.ones, (model.hidden,))
    if model.norm_type != "layer":
        return scale, None
    return scale, module.param("bias", nn.initializers.zeros, (model.hidden,))


def norm(x: jax.Array, scale: jax.Array, bias: jax.Array | None, model: Model) -> jax.Array:
    """The norm of x, float32 [..., hidden]; scale and bias float32 [hidden]."""
    check(
        "norm",
        x=("float32 [..., hidden]", x),
        scale=("float32 [hidden]", scale),
        bias=("float32 [hidden]", bias),
    )
    if model.norm_type == "rms":
        return _rms_norm(x, scale, model.layer_norm_epsilon, jnp.dtype(model.dtype))
    return _layer_norm(x, scale, bias, model.layer_norm_epsilon)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _layer_norm(
    x: jax.Array, scale: jax.Array, bias: jax.Array | None, epsilon: float
) -> jax.Array:
    """LayerNorm (Ba et al., 2016) of x, float32 [..., hidden]."""
    return _forward(x, scale, bias, epsilon)[0]


Normed = tuple[jax.Array, jax.Array, jax.Array | None, jax.Array, jax.Array]
"""What LayerNorm keeps for its gradient: x, scale, bias, and of each vector mean and factor."""


def _forward(
    x: jax.Array, scale: jax.Array, bias: jax.Array | None, epsilon: float
) -> tuple[jax.Array, Normed]:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    factor = jax.lax.rsqrt(variance + epsilon)
    y = (x - mean) * factor * scale
    return y if bias is None else y + bias, (x, scale, bias, mean, factor)


def _backward(
    epsilon: float, saved: Normed, gradient: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """From x and two numbers a vector: nothing else of the width of x is kept."""
    x, scale, bias, mean, factor = saved
    y, of_y = (x - mean) * factor, gradient * scale
    along = (of_y * y).mean(-1, keepdims=True)
    of_x = (of_y - of_y.mean(-1, keepdims=True) - y * along) * factor
    others = tuple(range(x.ndim - 1))
    return of_x, (gradient * y).sum(others), None if bias is None else gradient.sum(others)


_layer_norm.defvjp(_forward, _backward)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _rms_norm(x: jax.Array, scale: jax.Array, epsilon: float, dtype: jnp.dtype) -> jax.Array:
    """RMSNorm (Zhang and Sennrich, 2019) of x, float32 [..., hidden]: rounded to the type of
    products before the scale multiplies it, as Llama's and EuroBERT's released code does."""
    return _forward_rms(x, scale, epsilon, dtype)[0]


def _forward_rms(
    x: jax.Array, scale: jax.Array, epsilon: float, dtype: jnp.dtype
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    factor = jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon)
    return (x * factor).astype(dtype).astype(jnp.float32) * scale, (x, scale, factor)


def _backward_rms(
    epsilon: float,
    dtype: jnp.dtype,
    saved: tuple[jax.Array, jax.Array, jax.Array],
    gradient: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    x, scale, factor = saved
    y, of_y = x * factor, gradient * scale
    of_x = (of_y - y * (of_y * y).mean(-1, keepdims=True)) * factor
    return of_x, (gradient * y).sum(tuple(range(x.ndim - 1)))


_rms_norm.defvjp(_forward_rms, _backward_rms)
