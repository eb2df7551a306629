"""How times are taken; the rate of large matrix products, and the speed of reading rows."""

import statistics
import timeit
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlj.config import Config
from xlj.contracts.arrays import PyTree
from xlj.data.rows.batches import Batches
from xlj.data.rows.preparing import prepare_rows, with_rows
from xlj.models import sharding
from xlj.models.dense import product


class Size(NamedTuple):
    """The size of a step, and how often it is measured."""

    rows: int
    length: int
    repeats: int


def median_seconds(call: Callable[[], PyTree], repeats: int) -> float:
    """The median of the times that a call takes, after one that is not counted."""
    call()
    times = timeit.repeat(lambda: jax.block_until_ready(call()), number=1, repeat=repeats)
    return statistics.median_high(times)


def peak(config: Config, size: Size) -> None:
    """The rate of a large matrix product, in each type."""
    width = 2048 if sharding.platform() == "cpu" else 8192
    for dtype in map(jnp.dtype, ("float32", "bfloat16")):
        x = jax.random.normal(jax.random.key(0), (width, width)).astype(dtype)
        square = jax.jit(partial(product, dtype=dtype))
        seconds = median_seconds(partial(square, x, x), size.repeats)
        print(f"peak {dtype.name}: {2 * width**3 / seconds / 1e9:.0f} GFLOP/s", flush=True)


def read(config: Config, size: Size) -> None:
    """Batches of finished rows, their checks included."""
    config = with_rows(config)
    batches = Batches(prepare_rows(config), config)
    steps, slots = range(50), np.arange(4096)  # slots beyond a batch are the next steps' rows
    for name, (_, length) in batches.shapes(0).items():

        def call(name: str = name) -> None:
            for step in steps:
                batches.read(name, step, slots)

        rate = len(steps) * len(slots) * length / median_seconds(call, size.repeats) / 1e6
        print(f"read {name}: {rate:.0f} million tokens/s", flush=True)
