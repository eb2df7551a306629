"""Matrix products in the form that is fast on each backend, activations, and linear layers."""

import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from xlj.contracts.arrays import check
from xlj.models.counting import is_counting
from xlj.models.gradients import with_gradient
from xlj.sharding import devices
from xlj.sharding.rules import KERNEL, REPLICATED, ROWS

Arrays = TypeVar("Arrays")

Activation = Callable[[jax.Array, jnp.dtype], jax.Array]
"""An activation: (x, dtype of the result) -> result. x is float32 [..., n]. The result is [..., n],
or [..., n / 2] for gated activations."""

PRODUCT = "product"
"""Checkpoint name of the arrays that `model.remat=products` saves for the backward pass: the
outputs of linear layers and of attention."""


def product(left: jax.Array, right: jax.Array, dtype: jnp.dtype, right_axis: int = 0) -> jax.Array:
    """Multiplies two arrays in a dtype, with sums in float32.

    On a CPU, bfloat16 products are four times as fast as float32 products, but only if both factors
    are row-major and the left factor contracts its last axis. Barriers keep XLA from folding a
    transposition into the product. With a folded transposition, XLA would compute the product in
    float32, or fail to compile it.

    Args:
      left: float [..., k].
      right: float [k, m], or [m, k] with right_axis=1.
      dtype: to which both factors are rounded.
      right_axis: the axis k of `right`, 0 or 1.

    Returns:
      float32 [..., m].
    """
    right_is = ("float [k, m]", "float [m, k]")[right_axis]
    check("product", left=("float [..., k]", left), right=(right_is, right))
    return _product(left.astype(dtype), right.astype(dtype), (left.ndim - 1, right_axis))


def product_over_rows(left: jax.Array, right: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Computes left.T @ right for matrices [n, k] and [n, m], with sums in float32.

    Args:
      dtype: to which both factors are rounded.

    Returns:
      float32 [k, m].
    """
    check("product_over_rows", left=("float [n, k]", left), right=("float [n, m]", right))
    return _product(left.astype(dtype), right.astype(dtype), (0, 0))


def sum_over_rows(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Sums the rows of a matrix.

    The sum is computed as a product with a few rows of ones (16 on GPUs, for tensor cores). XLA's
    own sum over many rows is slow: on a CPU it takes as long as multiplying all rows with a kernel,
    and on a GPU it uses a fifth of the memory bandwidth.

    Args:
      x: float [n, m].
      dtype: to which x is rounded; the sum is in float32.

    Returns:
      float32 [m].
    """
    check("sum_over_rows", x=("float [n, m]", x))
    if is_counting():
        return x.sum(0)
    rows = 16 if devices.platform() == "gpu" else 8
    return product(jnp.ones((rows, len(x))), x, dtype)[0]


def products(left: jax.Array, right: jax.Array, contracted: tuple[int, int]) -> jax.Array:
    """Multiplies two batches of matrices of the same dtype, with sums in float32.

    Args:
      left: float [batch..., n, k] or [batch..., k, n].
      right: [batch..., m, k] or [batch..., k, m], of the dtype of `left`.
      contracted: the axis k of `left` and of `right`, -1 or -2 each.

    Returns:
      float32 [batch..., n, m].
    """
    left_is, right_is = (
        f"[batch..., k, {name}]" if axis == -2 else f"[batch..., {name}, k]"
        for axis, name in zip(contracted, "nm", strict=True)
    )
    check("products", left=(f"float {left_is}", left), right=(f"{left.dtype} {right_is}", right))
    left_axis, right_axis = (axis % left.ndim for axis in contracted)
    return _product(left, right, (left_axis, right_axis), left.ndim - 2)


def _product(
    left: jax.Array, right: jax.Array, contracted: tuple[int, int], batches: int = 0
) -> jax.Array:
    """Contracts one axis of each factor; sums are in float32.

    On a CPU, both factors keep their layout in memory. One case needs a copy: a left factor in
    bfloat16 that is contracted along its second-last axis. It is first rounded and then transposed
    in memory. Without the copy, XLA would read the float32 values before rounding with a stride,
    which takes longer than the product.

    Args:
      contracted: the contracted axis of `left` and of `right`.
      batches: number of leading batch axes that both factors share.
    """
    left_axis, right_axis = contracted
    if left_axis == left.ndim - 2 and left.dtype != jnp.float32:
        left, left_axis = swap_axes_copied(cpu_layout_barrier(left), -2, -1), left_axis + 1
    left, right = cpu_layout_barrier((left, right))
    batch = tuple(range(batches))
    dimensions = (((left_axis,), (right_axis,)), (batch, batch))
    precision, wide = precision_of(left.dtype), jnp.float32
    return cpu_layout_barrier(
        jax.lax.dot_general(left, right, dimensions, precision, preferred_element_type=wide)
    )


def swap_axes_copied(x: jax.Array, axis: int, other: int) -> jax.Array:
    """Swaps two axes of x, float [...]; on a CPU also in memory.

    The barrier is on the flattened array. A flat array has only one layout, so XLA must copy.
    """
    check("swap_axes_copied", x=("float [...]", x))
    swapped = x.swapaxes(axis, other)
    return cpu_layout_barrier(swapped.reshape(-1)).reshape(swapped.shape)


def precision_of(dtype: jnp.dtype) -> jax.lax.Precision | None:
    """Returns the precision of products in a dtype.

    Products in float32 are exact float32 on all platforms; JAX's default would round their factors
    on GPUs and TPUs.
    """
    return jax.lax.Precision.HIGHEST if dtype == jnp.float32 else None


def cpu_layout_barrier(arrays: Arrays) -> Arrays:
    """Returns a tree of arrays unchanged, behind an optimisation barrier on CPUs.

    The barrier makes XLA write the arrays to memory in their own layout before it uses them.
    """
    return jax.lax.optimization_barrier(arrays) if devices.platform() == "cpu" else arrays


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
    if activation is gelu and devices.platform() == "cpu":
        x, activation, shift = activation(_add_shift(x, shift), dtype), None, None
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

    active = _activate(x, shift, activation)
    return devices.per_device(compute_on_device, (ROWS, KERNEL), ROWS)(active, kernel), (
        x,
        kernel,
        shift,
    )


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
        if on_gpu and activation is None:
            grad_kernel, gradient = jax.lax.optimization_barrier((grad_kernel, gradient))
        grad_x = product(gradient, devices.all_gather(kernel.astype(dtype), 0), dtype, right_axis=1)
        return grad_x.astype(dtype), devices.reduce_sum(grad_kernel, 0)

    # XLA for GPUs delays the gradient of a kernel and keeps its factors in memory, unless a later
    # operation needs this gradient. The barriers on GPUs make later operations depend on it.
    on_gpu = devices.platform() == "gpu"
    x, kernel, shift = saved
    gradient = gradient.astype(dtype)
    if activation is not None:
        # The barrier keeps XLA from saving the activation of the forward pass.
        x, gradient = jax.lax.optimization_barrier((x, gradient))
    active, through_activation = jax.vjp(partial(_activate, activation=activation), x, shift)
    per_device = devices.per_device(compute_on_device, (ROWS, KERNEL, ROWS), (ROWS, KERNEL))
    grad_active, grad_kernel = per_device(active, kernel, gradient)
    grad_x, grad_shift = through_activation(grad_active)
    if on_gpu and activation is not None:
        grad_x, grad_kernel = jax.lax.optimization_barrier((grad_x, grad_kernel))
    return grad_x, grad_kernel, grad_shift


_matmul = with_gradient(_forward, _backward, static=(3, 4))


def _activate(x: jax.Array, shift: jax.Array | None, activation: Activation | None) -> jax.Array:
    """Applies shift and activation in float32, and rounds the result [..., in] to the dtype of x.

    Without an activation, it returns x unchanged.
    """
    if activation is None:
        return x
    return activation(_add_shift(x, shift), jnp.dtype(jnp.float32)).astype(x.dtype)


def _add_shift(x: jax.Array, shift: jax.Array | None) -> jax.Array:
    """Computes x + shift in float32.

    Args:
      x: float [..., n].
      shift: float32 [n]; None for 0.

    Returns:
      float32 [..., n].
    """
    if shift is None:
        return x.astype(jnp.float32)
    if devices.platform() == "gpu":
        return _add_shift_on_gpus(x, shift, x.dtype)
    return x.astype(jnp.float32) + shift


def _forward_add_shift(
    x: jax.Array, shift: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, tuple[()]]:
    return x.astype(jnp.float32) + shift, ()


def _backward_add_shift(
    dtype: jnp.dtype, _: tuple[()], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    def compute_on_device(gradient: jax.Array) -> jax.Array:
        return devices.reduce_sum(sum_over_rows(gradient.reshape(-1, gradient.shape[-1]), dtype))

    grad_x = gradient.astype(dtype)
    return grad_x, devices.per_device(compute_on_device, (ROWS,), REPLICATED)(grad_x)


_add_shift_on_gpus = with_gradient(_forward_add_shift, _backward_add_shift, static=(2,))


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
    y = matmul(x, kernel, dtype, activation, shift)
    if devices.platform() == "gpu":
        # Without the barrier, XLA would write the product in float32 and round it in another
        # kernel.
        y = jax.lax.optimization_barrier(y.astype(result))
    return checkpoint_name(_add_shift(y, bias).astype(result), PRODUCT)


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
