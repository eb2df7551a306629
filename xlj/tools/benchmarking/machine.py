"""Measures this machine: the peak rate of large matrix products, and the time to import xlj's
commands and other libraries.
"""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp

from xlj.config import Config
from xlj.models.lowering import product
from xlj.sharding import devices
from xlj.tools.benchmarking.measurements import Measurement, Size, in_own_process, median_seconds
from xlj.tools.benchmarking.peers import library, torch_device, torch_median_seconds


def peak(config: Config, size: Size) -> Iterator[Measurement]:
    """Measures the rate of a large matrix product in float32 and bfloat16."""
    width = 2048 if devices.platform() == "cpu" else 8192
    operations = 2 * width**3
    for dtype in ("float32", "bfloat16"):
        torch_seconds = (
            in_own_process(_torch_seconds, width, dtype, size.repeats) if library("torch") else None
        )
        seconds = in_own_process(_seconds, width, dtype, size.repeats)
        rate, peer_rate = (
            operations / seconds / 1e9,
            torch_seconds and operations / torch_seconds / 1e9,
        )
        yield Measurement("peak", dtype, rate, "GFLOP/s", "torch", peer_rate)


def _seconds(width: int, dtype: str, repeats: int) -> float:
    """Returns the seconds of a product of two square matrices."""
    x = jax.random.normal(jax.random.key(0), (width, width)).astype(dtype)
    square = jax.jit(partial(product, dtype=jnp.dtype(dtype)))
    return median_seconds(partial(square, x, x), repeats)


def _torch_seconds(width: int, dtype: str, repeats: int) -> float | None:
    """Returns the seconds of a product of two square matrices in PyTorch; None if GPU memory is too
    small."""
    torch = library("torch")
    assert torch is not None
    x = torch.randn(width, width, device=torch_device()).to(getattr(torch, dtype))
    output = torch.empty_like(x)  # allocated before the measurement
    return torch_median_seconds(lambda: torch.mm(x, x, out=output)[0, 0].item(), repeats)


_PEERS = {
    "import xlj": ("import transformers", "transformers"),
    "import xlj.training.loop": ("from transformers import Trainer", "transformers"),
    "import xlj.word_alignment.aligner": ("import simalign", "simalign"),
    "import xlj.retrieval.embedder": ("import sentence_transformers", "sentence_transformers"),
}
"""By program that imports what a command of xlj needs: a program that imports another library for
the same work, and the name of that library."""


def measure_imports(config: Config, size: Size) -> Iterator[Measurement]:
    """Measures the time of a new Python process that only imports what a command needs."""
    for program, (peer_program, name) in _PEERS.items():
        seconds, peer_seconds = _import_seconds(program, size.repeats), None
        if library(name):
            peer_seconds = _import_seconds(peer_program, size.repeats)
        yield Measurement("start", program, seconds, "s", peer_program, peer_seconds)


def _import_seconds(program: str, repeats: int) -> float:
    start = [sys.executable, "-c", program]
    return median_seconds(partial(subprocess.run, start, check=True, capture_output=True), repeats)
