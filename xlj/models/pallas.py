"""What xlj's Pallas kernels share: the Triton backend, which may be missing, and stated costs."""

import math
from collections.abc import Iterable
from typing import Any

import jax
from jax.experimental import pallas as pl

from xlj.sharding import devices

triton: Any
"""Pallas' Triton backend; None in a JAX without it. JAX has announced to remove this backend."""
try:
    from jax.experimental.pallas import triton
except ImportError:
    triton = None


def why_no_triton() -> str | None:
    """Returns why the devices of the traced program cannot run Triton kernels; None if they can.

    CPUs can, because Pallas interprets the kernels there.
    """
    if triton is None:
        return "this JAX has no Triton backend"
    if devices.platform() == "tpu":
        return "runs on GPUs"
    if not devices.has_bfloat16():
        capability = devices.compute_capability()
        return f"needs compute capability {devices.AMPERE}; these GPUs have {capability}"
    return None


def cost(operations: int, arrays: Iterable[jax.Array | jax.ShapeDtypeStruct]) -> pl.CostEstimate:
    """Returns the cost that a kernel states. `xlj.plan` and XLA's scheduler for TPUs read it.

    Args:
      operations: floating-point operations in matrix products.
      arrays: inputs and outputs, each of which the kernel reads or writes once.
    """
    size = sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays)
    return pl.CostEstimate(flops=operations, transcendentals=0, bytes_accessed=size)
