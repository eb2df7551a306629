"""Matrix products in the form that the backend runs fast, and the linear layer made of them."""

from __future__ import annotations

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def matmul(x: jax.Array, kernel: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """x [..., in] times kernel [in, out], multiplied in `dtype`, summed and returned in float32.

    The gradients are float32 too, so that bfloat16 rounds each factor once and nothing else.
    """
    return jnp.dot(x.astype(dtype), kernel.astype(dtype), preferred_element_type=jnp.float32)


def _forward(
    x: jax.Array, kernel: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return matmul(x, kernel, dtype), (x, kernel)


def _backward(
    dtype: jnp.dtype, saved: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = saved
    gradient = gradient.astype(dtype)
    of_x = jax.lax.dot_general(
        gradient,
        kernel.astype(dtype),
        (((gradient.ndim - 1,), (1,)), ((), ())),
        preferred_element_type=jnp.float32,
    )
    transposed = _transposed(x.astype(dtype).reshape(-1, x.shape[-1]))
    of_kernel = jnp.dot(
        transposed,
        gradient.reshape(-1, gradient.shape[-1]),
        preferred_element_type=jnp.float32,
    )
    return of_x.astype(x.dtype), of_kernel.astype(kernel.dtype)


matmul.defvjp(_forward, _backward)


def _transposed(x: jax.Array) -> jax.Array:
    """x.T, laid out on the CPU: its bfloat16 product is fast (2x float32) only when the left factor
    contracts its last axis, and XLA would otherwise fold the transposition into the product."""
    return jax.lax.optimization_barrier(x.T) if jax.default_backend() == "cpu" else x.T


class Dense(nn.Module):
    """A linear layer with float32 parameters `kernel` [in, out] and `bias` [out]."""

    features: int
    dtype: jnp.dtype
    init_std: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., in] -> float32 [..., out]."""
        normal = nn.initializers.normal(self.init_std)
        kernel = self.param("kernel", normal, (x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        return matmul(x, kernel, self.dtype) + bias


class LayerNorm(nn.Module):
    """LayerNorm over the last axis, in float32, with parameters `scale` and `bias`."""

    epsilon: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., hidden] -> float32 [..., hidden]."""
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],))
        x = x.astype(jnp.float32)
        mean = x.mean(-1, keepdims=True)
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + self.epsilon) * scale + bias
