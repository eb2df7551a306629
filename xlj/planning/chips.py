"""Chips that runs can be planned for: vendors' peak rates, and the shares that kernels reach."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_GIB = 2**30


class Chip(NamedTuple):
    """One accelerator.

    Attributes:
      platform: JAX's name, gpu or tpu.
      flops: bfloat16 operations per second in dense matrix products; a multiply-add counts as 2.
      float32: operations per second in float32 products of full precision.
      memory: bytes that programs can use.
      bandwidth: bytes per second between the chip and its main memory.
      fast: bytes per second in one direction, over all NVLinks of a GPU or one link of a TPU.
      slow: bytes per second in one direction, a device's share of the network between hosts or
        slices.
      ring: a TPU's torus is closed along an axis whose size is a multiple of this; a chip then has
        two links along the axis, otherwise one.
      target: properties of the chip for the GPU compiler.
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
        """Returns the operations per second in products of a kind (`products.products`).

        Float32 at default precision is TF32 on GPUs, half as fast as bfloat16, and one pass of
        bfloat16 on TPUs.
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
    # A float32 product takes six passes of bfloat16.
    return Chip("tpu", flops, flops / 6, memory * _GIB, bandwidth, fast, slow, ring)


_OF_GPU = 0.92  # usable share of a GPU's memory (ours); CUDA, NCCL and cuDNN use the rest

CHIPS = {
    "a100": Chip(
        *("gpu", 312e12, 19.5e12, _OF_GPU * 79.25 * _GIB, 2.039e12, 300e9, 25e9),
        target=_gpu("NVIDIA A100-SXM4-80GB", 8, 0, 108, 167_936),
    ),
    "h100": Chip(
        *("gpu", 989e12, 67e12, _OF_GPU * 79.1 * _GIB, 3.352e12, 450e9, 50e9),
        target=_gpu("NVIDIA H100 80GB HBM3", 9, 0, 132, 233_472),
    ),
    "h200": Chip(
        *("gpu", 989e12, 67e12, _OF_GPU * 139.8 * _GIB, 4.8e12, 450e9, 50e9),
        target=_gpu("NVIDIA H200", 9, 0, 132, 233_472),
    ),
    "b200": Chip(
        *("gpu", 2250e12, 75e12, _OF_GPU * 178.4 * _GIB, 8e12, 900e9, 50e9),
        target=_gpu("NVIDIA B200", 10, 0, 148, 233_472),
    ),
    "v5e": _tpu(197e12, 15.75, 0.819e12, 50e9, 3.125e9, 16),
    "v5p": _tpu(459e12, 95.74, 2.765e12, 100e9, 6.25e9, 4),
    "v6e": _tpu(918e12, 31.25, 1.64e12, 100e9, 12.5e9, 16),
}
"""Vendors' figures, from NVIDIA's data sheets (HGX systems with a network card of 200 or 400 Gb/s
per GPU) and Google's documentation of each TPU (links within a slice, and the data centre
network)."""

SHARES = {"products": 0.74, "attention": 0.16, "memory": 0.89}
"""The share of a chip's peak that each kind of kernel reaches.

For products (of cuBLAS and XLA) and xlj's attention kernels (with dropout) it is a share of the
operations per second. For all other kernels, and for products whose traffic takes longer, it is a
share of the bandwidth. The values are a least squares fit to measurements of one H100 and of a copy
on an H200 (tests/planning/test_estimate.py); no other chip was measured."""
LAUNCH = 2.5e-6
"""The overhead of each kernel in seconds, from the same fit."""
