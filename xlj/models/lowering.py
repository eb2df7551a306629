"""How functions become programs: the form of matrix products on each kind of device, layouts in
memory, barriers, hand-written gradients, and programs that only count.

The other modules of models and objectives state what is computed; they call this module where XLA
needs help to compute it fast on CPUs, GPUs or TPUs. A barrier (`jax.lax.optimization_barrier`)
changes no value. XLA moves, merges and splits no operation across it.

`counting` marks programs that are traced only to count their operations, and that never run. Some
implementations compute more than the mathematics needs: attention computes all scores of a row and
then hides those outside the window, and some sums are products with ones. The extra work depends on
the platform and on the shapes. It must not count, so these implementations take another path inside
`counting`.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import PyTree, check
from xlj.sharding import devices
from xlj.sharding.devices import REPLICATED, ROWS

Result = TypeVar("Result")
Saved = TypeVar("Saved")


def with_gradient(
    forward: Callable[..., tuple[Result, Saved]],
    backward: Callable[..., PyTree],
    static: tuple[int, ...] = (),
) -> Callable[..., Result]:
    """Builds a function from its forward and backward pass, with `jax.custom_vjp`.

    Args:
      forward: (arguments) -> (result, values saved for the backward pass).
      backward: (static arguments, saved values, gradient of the result) -> tuple of the gradients
        of the other arguments. None is the gradient of an argument without gradient.
      static: indices of the arguments that are not arrays.

    Returns:
      The function (arguments) -> result.
    """

    def function(*arguments: PyTree) -> Result:
        return forward(*arguments)[0]

    differentiable = jax.custom_vjp(function, nondiff_argnums=static)
    differentiable.defvjp(forward, backward)
    return differentiable


Arrays = TypeVar("Arrays")


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


def rounded(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Rounds x, float [...], to a dtype, behind a barrier.

    Without the barrier, XLA would write x in float32 to memory and round it in another kernel.
    """
    check("rounded", x=("float [...]", x))
    return jax.lax.optimization_barrier(x.astype(dtype))


def rounded_on_gpus(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Rounds a product x, float32 [...], to a dtype on GPUs, and returns it in float32 elsewhere.

    On GPUs, rounding takes no extra time, and later operations read fewer bytes.
    """
    check("rounded_on_gpus", x=("float32 [...]", x))
    return rounded(x, dtype) if devices.platform() == "gpu" else x


def product_dtype(dtype: jnp.dtype) -> jnp.dtype:
    """Returns the dtype of the result of `rounded_on_gpus`."""
    return dtype if devices.platform() == "gpu" else jnp.dtype(jnp.float32)


def recomputed(arrays: Arrays) -> Arrays:
    """Returns a tree of arrays unchanged, from which the backward pass computes others again.

    Without the barrier, XLA would see that the forward pass has computed them, and save them.
    """
    return jax.lax.optimization_barrier(arrays)


def together_on_gpus(arrays: Arrays) -> Arrays:
    """Returns a tree of arrays unchanged; on GPUs, an operation that needs one waits for all.

    XLA for GPUs delays the gradient of a kernel and keeps its factors in memory, unless a later
    operation needs this gradient.
    """
    return jax.lax.optimization_barrier(arrays) if devices.platform() == "gpu" else arrays


def saves_gelu() -> bool:
    """Returns whether to save the result of a plain GELU for the backward pass.

    CPUs take too much time to compute it again.
    """
    return devices.platform() == "cpu"


def row_multiple() -> int:
    """Returns the number of which the width of a large matrix should be a multiple.

    On GPUs it is 64: each row in bfloat16 then begins at a multiple of 128 bytes, as tensor cores
    need.
    """
    return 64 if devices.platform() == "gpu" else 1


def add_bias(x: jax.Array, bias: jax.Array | None) -> jax.Array:
    """Computes x + bias in float32. On GPUs, the gradient of the bias is a product.

    Args:
      x: float [..., n].
      bias: float32 [n]; None for 0.

    Returns:
      float32 [..., n].
    """
    check("add_bias", x=("float [..., n]", x), bias=("float32 [n]", bias))
    if bias is None:
        return x.astype(jnp.float32)
    if devices.platform() == "gpu":
        return _add_bias_on_gpus(x, bias, x.dtype)
    return x.astype(jnp.float32) + bias


def _forward_add_bias(
    x: jax.Array, bias: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, tuple[()]]:
    return x.astype(jnp.float32) + bias, ()


def _backward_add_bias(
    dtype: jnp.dtype, _: tuple[()], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    def compute_on_device(gradient: jax.Array) -> jax.Array:
        return devices.reduce_sum(sum_over_rows(gradient.reshape(-1, gradient.shape[-1]), dtype))

    grad_x = gradient.astype(dtype)
    return grad_x, devices.per_device(compute_on_device, (ROWS,), REPLICATED)(grad_x)


_add_bias_on_gpus = with_gradient(_forward_add_bias, _backward_add_bias, static=(2,))


_is_counting: ContextVar[bool] = ContextVar("is_counting", default=False)


@contextlib.contextmanager
def counting() -> Iterator[None]:
    """Marks the programs that are traced inside a `with` statement."""
    before = _is_counting.set(True)
    try:
        yield
    finally:
        _is_counting.reset(before)


def is_counting() -> bool:
    """Returns whether the caller is inside `counting`."""
    return _is_counting.get()
