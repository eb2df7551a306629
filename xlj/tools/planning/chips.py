"""Chips for which runs can be planned: peak rates, and the shares of them that kernels reach."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_GIB = 2**30


class Chip(NamedTuple):
    """One accelerator.

    Attributes:
      platform: JAX's name of the platform, gpu or tpu.
      flops: peak bfloat16 operations per second in dense matrix products. A multiply-add counts as
        2.
      float32: peak operations per second in float32 products with full precision.
      memory: bytes that programs can use.
      bandwidth: bytes per second between the chip and its main memory.
      fast: bytes per second in one direction, over all NVLinks of a GPU, or over one link of a TPU.
      slow: bytes per second in one direction of a chip's share of the network between hosts or
        slices.
      ring: the torus of TPUs wraps around along an axis whose size is a multiple of this number. A
        chip then has two links along the axis, otherwise one. 0 for GPUs.
      target: properties of the chip that the GPU compiler needs; empty for TPUs.
    """

    platform: str
    flops: float
    float32: float
    memory: float
    bandwidth: float
    fast: float
    slow: float
    ring: int = 0
    target: Mapping[str, float | str] = MappingProxyType({})

    def rate(self, kind: str) -> float:
        """Returns the peak operations per second in matrix products of a type.

        For float32 at default precision, GPUs use TF32, which is half as fast as bfloat16. TPUs
        use one pass of bfloat16.

        Args:
          kind: a key of the result of `products.products`.
        """
        if kind in ("bf16", "f16"):
            return self.flops
        if kind == "f32":
            return self.flops / 2 if self.platform == "gpu" else self.flops
        return self.float32


def _gpu(name: str, major: int, minor: int, cores: int, shared: int) -> dict[str, float | str]:
    return {"name": name, "major": major, "minor": minor, "cores": cores, "shared": shared}


def _tpu(
    flops: float, memory: float, bandwidth: float, fast: float, slow: float, ring: int
) -> Chip:
    # A float32 product with full precision takes six passes of bfloat16.
    return Chip("tpu", flops, flops / 6, memory * _GIB, bandwidth, fast, slow, ring)


# The share of a GPU's memory that programs can use (our choice). CUDA, NCCL and cuDNN use the rest.
_GPU_MEMORY_SHARE = 0.92

CHIPS = {
    "a100": Chip(
        *("gpu", 312e12, 19.5e12, _GPU_MEMORY_SHARE * 79.25 * _GIB, 2.039e12, 300e9, 25e9),
        target=_gpu("NVIDIA A100-SXM4-80GB", 8, 0, 108, 167_936),
    ),
    "h100": Chip(
        *("gpu", 989e12, 67e12, _GPU_MEMORY_SHARE * 79.1 * _GIB, 3.352e12, 450e9, 50e9),
        target=_gpu("NVIDIA H100 80GB HBM3", 9, 0, 132, 233_472),
    ),
    "h200": Chip(
        *("gpu", 989e12, 67e12, _GPU_MEMORY_SHARE * 139.8 * _GIB, 4.8e12, 450e9, 50e9),
        target=_gpu("NVIDIA H200", 9, 0, 132, 233_472),
    ),
    "b200": Chip(
        *("gpu", 2250e12, 75e12, _GPU_MEMORY_SHARE * 178.4 * _GIB, 8e12, 900e9, 50e9),
        target=_gpu("NVIDIA B200", 10, 0, 148, 233_472),
    ),
    "rtx4090": Chip(  # no NVLink: the links are PCIe
        *("gpu", 165e12, 82.6e12, _GPU_MEMORY_SHARE * 23.5 * _GIB, 1.008e12, 32e9, 25e9),
        target=_gpu("NVIDIA GeForce RTX 4090", 8, 9, 128, 102_400),
    ),
    "v5e": _tpu(197e12, 15.75, 0.819e12, 50e9, 3.125e9, 16),
    "v5p": _tpu(459e12, 95.74, 2.765e12, 100e9, 6.25e9, 4),
    "v6e": _tpu(918e12, 31.25, 1.64e12, 100e9, 12.5e9, 16),
}
"""Chips by name, with vendors' figures.

Sources: NVIDIA's data sheets (HGX systems with a network card of 200 or 400 Gb/s for each GPU; for
the RTX 4090, bfloat16 products that are summed in float32), and Google's documentation of each TPU
(links within a slice, and the data centre network)."""

SHARES = {"products": 0.74, "attention": 0.16, "memory": 0.89}
"""The share of a chip's peak rate that each kind of kernel reaches.

`products` (of cuBLAS and XLA) and `attention` (xlj's kernels, with dropout) are shares of the
operations per second. `memory` is a share of the bandwidth. It applies to all other kernels, and to
products and attention whose memory traffic takes longer than their operations. The values are a
least squares fit to measurements of one H100, and of a memory copy on an H200
(tests/tools/planning/test_estimate.py). No other chip was measured."""
LAUNCH = 2.5e-6
"""The overhead of launching a kernel in seconds, from the fit of `SHARES`."""
