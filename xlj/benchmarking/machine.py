"""What this machine does at most: the rate of large matrix products."""

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp

from xlj.benchmarking.measurements import Measurement, Size, median_seconds
from xlj.config import Config
from xlj.models import sharding
from xlj.models.dense import product


def peak(config: Config, size: Size) -> Iterator[Measurement]:
    """The rate of a large matrix product, in each type."""
    width = 2048 if sharding.platform() == "cpu" else 8192
    for dtype in map(jnp.dtype, ("float32", "bfloat16")):
        x = jax.random.normal(jax.random.key(0), (width, width)).astype(dtype)
        square = jax.jit(partial(product, dtype=dtype))
        seconds = median_seconds(partial(square, x, x), size.repeats)
        yield Measurement("peak", dtype.name, 2 * width**3 / seconds / 1e9, "GFLOP/s")
