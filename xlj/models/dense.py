"""Matrix products in the form that the backend runs fast, and the linear layer made of them."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.models import sharding
from xlj.models.sharding import KERNEL, ROWS


def product(left: jax.Array, right: jax.Array, dtype: jnp.dtype, right_axis: int = 0) -> jax.Array:
    """left [..., k] times right [k, m] (or [m, k] with right_axis=1), summed in float32.

    On the CPU, bfloat16 is fast (2x float32) only for factors that lie row by row, the left one
    contracting its last axis. The barriers keep XLA from folding transpositions around the product
    into it, which it would then compute in float32, or not at all.
    """
    left, right = _as_is(left.astype(dtype), right.astype(dtype))
    dimensions = (((left.ndim - 1,), (right_axis,)), ((), ()))
    return _as_is(
        jax.lax.dot_general(
            left,
            right,
            dimensions,
            precision=precision_of(dtype),
            preferred_element_type=jnp.float32,
        )
    )


def precision_of(dtype: jnp.dtype) -> jax.lax.Precision | None:
    """The precision of products of this type: float32 is float32, on GPUs and TPUs too."""
    return jax.lax.Precision.HIGHEST if dtype == jnp.float32 else None


def transposed(x: jax.Array) -> jax.Array:
    """x.T of a matrix, really moved in memory on the CPU (see `product`)."""
    return _as_is(x.T.reshape(-1)).reshape(x.shape[::-1])


def _as_is(*arrays: jax.Array) -> Any:
    if jax.default_backend() == "cpu":
        arrays = jax.lax.optimization_barrier(arrays)
    return arrays if len(arrays) > 1 else arrays[0]


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def matmul(x: jax.Array, kernel: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """x [..., in] times kernel [in, out], multiplied in `dtype`, summed and returned in float32.

    The gradients are float32 too, so that bfloat16 rounds each factor once and nothing else.
    """
    return _forward(x, kernel, dtype)[0]


def _forward(
    x: jax.Array, kernel: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    def of_rows(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return product(x, sharding.whole(kernel.astype(dtype), 0), dtype)

    y = sharding.by_device(of_rows, (ROWS, KERNEL), ROWS)(x, kernel)
    # In bfloat16 half as much is kept for the backward pass.
    return y, (x.astype(dtype), kernel)


def _backward(
    dtype: jnp.dtype, saved: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    def of_rows(
        x: jax.Array, kernel: jax.Array, gradient: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        of_x = product(gradient, sharding.whole(kernel.astype(dtype), 0), dtype, right_axis=1)
        tokens = transposed(x.reshape(-1, x.shape[-1]))
        of_kernel = product(tokens, gradient.reshape(-1, gradient.shape[-1]), dtype)
        return of_x, sharding.summed(of_kernel, 0)

    x, kernel = saved
    by_device = sharding.by_device(of_rows, (ROWS, KERNEL, ROWS), (ROWS, KERNEL))
    return by_device(x, kernel, gradient.astype(dtype))


matmul.defvjp(_forward, _backward)


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
