"""The rate of large matrix products."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from xlj.benchmarking.timing import Size, median_seconds
from xlj.config import Config
from xlj.models.dense import product


def peak(config: Config, size: Size) -> None:
    """The rate of a large matrix product, in each type."""
    width = 2048 if jax.default_backend() == "cpu" else 8192
    for dtype in map(jnp.dtype, ("float32", "bfloat16")):
        x = jax.random.normal(jax.random.key(0), (width, width)).astype(dtype)
        square = jax.jit(partial(product, dtype=dtype))
        seconds = median_seconds(partial(_finished, square, x), size.repeats)
        print(f"peak {dtype.name}: {2 * width**3 / seconds / 1e9:.0f} GFLOP/s", flush=True)


def _finished(function: Callable[[jax.Array, jax.Array], jax.Array], x: jax.Array) -> None:
    jax.block_until_ready(function(x, x))
