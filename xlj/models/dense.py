"""Linear layers, x @ kernel + bias, optionally of an activation of x.

Activations have the form that is fast to compute and cheap to save for the backward pass.
"""

import math
from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from xlj.contracts.arrays import check
from xlj.models import lowering
from xlj.models.lowering import product, product_over_rows, with_gradient
from xlj.sharding import devices
from xlj.sharding.devices import KERNEL, ROWS

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


PRODUCT = "product"
"""Checkpoint name of the arrays that `model.remat=products` saves for the backward pass: the
outputs of linear layers and of attention."""


class Weights(nn.Module):
    """The float32 parameters of a linear layer, for a module that computes the product itself.

    Parameters: `kernel` [inputs, outputs], drawn from N(0, init_std^2), and, if `has_bias`, `bias`
    [outputs], which starts at 0.
    """

    inputs: int
    outputs: int
    init_std: float
    has_bias: bool = True

    @nn.compact
    def __call__(self) -> tuple[jax.Array, jax.Array | None]:
        """Returns the kernel, and the bias or None."""
        return _weights(self, self.inputs, self.outputs)


class Dense(nn.Module):
    """A linear layer with the parameters of `Weights`.

    Attributes:
      features: size of the output.
      dtype: of the factors of the product.
      result: dtype of the output; None for float32.
    """

    features: int
    dtype: jnp.dtype
    init_std: float
    result: jnp.dtype | None = None
    has_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps x float [..., in] -> [..., features] in the dtype `result`."""
        kernel, bias = _weights(self, x.shape[-1], self.features)
        return linear(x, kernel, bias, self.dtype, self.result or jnp.dtype(jnp.float32))


def _weights(
    module: Weights | Dense, inputs: int, outputs: int
) -> tuple[jax.Array, jax.Array | None]:
    kernel = module.param("kernel", nn.initializers.normal(module.init_std), (inputs, outputs))
    if not module.has_bias:
        return kernel, None
    return kernel, module.param("bias", nn.initializers.zeros, (outputs,))


def linear(
    x: jax.Array,
    kernel: jax.Array,
    bias: jax.Array | None,
    dtype: jnp.dtype,
    result: jnp.dtype,
    activation: Activation | None = None,
    shift: jax.Array | None = None,
) -> jax.Array:
    """Computes a linear layer, optionally after an activation.

    Args:
      x: float [..., in].
      kernel: float32 [in, out].
      bias: float32 [out]; None for no bias.
      dtype: of the factors of the product.
      result: the dtype to which the output is rounded, after the bias is added. On GPUs, the
        product is rounded to this dtype before the bias is added, too.
      activation: applied to x before the product (`matmul`); None for no activation.
      shift: float32 [in], added to x before the activation; None for no shift. Without an
        activation, it has no effect.

    Returns:
      [..., out] in the dtype `result`.
    """
    check("linear", kernel=("float [in_here, out]", kernel), bias=("float32 [out]", bias))
    y = lowering.rounded_on_gpus(matmul(x, kernel, dtype, activation, shift), result)
    return checkpoint_name(lowering.add_bias(y, bias).astype(result), PRODUCT)


def matmul(
    x: jax.Array,
    kernel: jax.Array,
    dtype: jnp.dtype,
    activation: Activation | None = None,
    shift: jax.Array | None = None,
) -> jax.Array:
    """Multiplies x with a kernel, optionally after an activation; sums are in float32.

    With dtype=bfloat16, each pass rounds each factor once. The backward pass needs x only in
    bfloat16, so the saved x has half the bytes of float32. The gradient of x is rounded to the
    dtype of x. The gradient of the kernel is float32.

    With an activation, only x is saved, and the backward pass computes the activation again. Saving
    the intermediate arrays of a gated activation would take three times the bytes of x. GELU on
    CPUs is an exception: computing it again takes too much time, so its result is saved.

    Args:
      x: float [..., in].
      kernel: float [in, out].
      dtype: of the factors.
      activation: applied to x in float32 before the product; None for no activation.
      shift: float32 [in], added to x before the activation; None for no shift. Without an
        activation, it has no effect.

    Returns:
      float32 [..., out].
    """
    check(
        "matmul",
        x=("float [..., in]", x),
        # The kernel may be one device's slice of the inputs, so only `product` checks `in`.
        kernel=("float [in_here, out]", kernel),
        shift=("float [in]", shift),
    )
    if activation is gelu and lowering.saves_gelu():
        x, activation, shift = activation(lowering.add_bias(x, shift), dtype), None, None
    return _matmul(x.astype(dtype), kernel, shift, dtype, activation)


def _forward(
    x: jax.Array,
    kernel: jax.Array,
    shift: jax.Array | None,
    dtype: jnp.dtype,
    activation: Activation | None,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array | None]]:
    """Returns the product of `_matmul`, and the values that `_backward` needs."""

    def compute_on_device(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return product(x, devices.all_gather(kernel.astype(dtype), 0), dtype)

    per_device = devices.per_device(compute_on_device, (ROWS, KERNEL), ROWS)
    return per_device(_activate(x, shift, activation), kernel), (x, kernel, shift)


def _backward(
    dtype: jnp.dtype,
    activation: Activation | None,
    saved: tuple[jax.Array, jax.Array, jax.Array | None],
    gradient: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Computes the gradients of x, kernel and shift from the gradient of the product."""

    def compute_on_device(
        x: jax.Array, kernel: jax.Array, gradient: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        grad_kernel = product_over_rows(
            x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1]), dtype
        )
        if activation is None:
            grad_kernel, gradient = lowering.together_on_gpus((grad_kernel, gradient))
        grad_x = product(gradient, devices.all_gather(kernel.astype(dtype), 0), dtype, right_axis=1)
        return grad_x.astype(dtype), devices.reduce_sum(grad_kernel, 0)

    x, kernel, shift = saved
    gradient = gradient.astype(dtype)
    if activation is not None:
        x, gradient = lowering.recomputed((x, gradient))
    active, through_activation = jax.vjp(partial(_activate, activation=activation), x, shift)
    per_device = devices.per_device(compute_on_device, (ROWS, KERNEL, ROWS), (ROWS, KERNEL))
    grad_active, grad_kernel = per_device(active, kernel, gradient)
    grad_x, grad_shift = through_activation(grad_active)
    if activation is not None:
        grad_x, grad_kernel = lowering.together_on_gpus((grad_x, grad_kernel))
    return grad_x, grad_kernel, grad_shift


_matmul = with_gradient(_forward, _backward, static=(3, 4))


def _activate(x: jax.Array, shift: jax.Array | None, activation: Activation | None) -> jax.Array:
    """Applies shift and activation in float32, and rounds the result [..., in] to the dtype of x.

    Without an activation, it returns x unchanged.
    """
    if activation is None:
        return x
    return activation(lowering.add_bias(x, shift), jnp.dtype(jnp.float32)).astype(x.dtype)
