"""Activations, in the form that is fast to compute and cheap to save for the backward pass."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from xlj.contracts.arrays import check
from xlj.models.gradients import with_gradient

Activation = Callable[[jax.Array, jnp.dtype], jax.Array]
"""An activation: (x, dtype of the result) -> result. x is float32 [..., n]. The result is [..., n],
or [..., n / 2] for gated activations."""


def gelu(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Computes the exact GELU (Hendrycks and Gimpel, 2016) of x, float32 [...], with erf.

    JAX's own GELU uses erfc, which XLA for GPUs does not fuse. The backward pass needs Phi(x), the
    distribution function of the normal distribution. It computes Phi(x) as output / x, since the
    output is in memory anyway, as a factor of the next product. In bfloat16, this quotient is as
    exact as the output.

    Args:
      dtype: of the result.
    """
    check("gelu", x=("float32 [...]", x))
    return _gelu(x, dtype)


def _forward_gelu(x: jax.Array, dtype: jnp.dtype) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    y = (0.5 * x * (1 + jax.lax.erf(x * np.float32(math.sqrt(0.5))))).astype(dtype)
    return y, (x, y)


def _backward_gelu(
    dtype: jnp.dtype, saved: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array]:
    x, y = saved
    # Phi(x) = y / x, except near 0, where Phi(0) = 1/2 and the quotient could be 0 / 0.
    near_zero = jnp.abs(x) < 1e-30
    below = jnp.where(near_zero, 0.5, y.astype(jnp.float32) / jnp.where(near_zero, 1, x))
    density = jnp.exp(-0.5 * x * x) * np.float32(1 / math.sqrt(2 * math.pi))
    return (gradient.astype(jnp.float32) * (below + x * density),)


_gelu = with_gradient(_forward_gelu, _backward_gelu, static=(1,))


def geglu(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Multiplies the GELU of the first half of each vector with the second half (Shazeer, 2020).

    Maps x float32 [..., 2 n] -> [..., n] in `dtype`.
    """
    check("geglu", x=("float32 [..., both]", x))
    active, factor = jnp.split(x, 2, axis=-1)
    return (_gelu(active, jnp.dtype(jnp.float32)) * factor).astype(dtype)


def swiglu(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Multiplies the SiLU of the first half of each vector with the second half (Shazeer, 2020).

    SiLU(x) is x sigmoid(x). Maps x float32 [..., 2 n] -> [..., n] in `dtype`.
    """
    check("swiglu", x=("float32 [..., both]", x))
    active, factor = jnp.split(x, 2, axis=-1)
    return (jax.nn.silu(active) * factor).astype(dtype)
