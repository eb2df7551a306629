"""Measures the speed of the implementations of attention, forward and backward."""

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp

from xlj.config import Config
from xlj.models.attention.choosing import IMPLEMENTATIONS
from xlj.models.attention.interface import Implementation, Mask, Operands, Request
from xlj.models.attention.kernels import Fused
from xlj.sharding import devices
from xlj.tools.benchmarking.measurements import Measurement, Size, median_seconds
from xlj.tools.benchmarking.peers import library, torch_device, torch_median_seconds

_PEER = "torch's SDPA"


def measure_attention(config: Config, size: Size) -> Iterator[Measurement]:
    """Measures each implementation of attention in float32 and bfloat16, without the projections of
    a layer."""
    model, platform = config.model, devices.platform()
    shape = size.rows, size.length, model.heads, model.hidden // model.heads
    ids = jnp.ones(shape[:2], jnp.int32)
    for dtype in ("float32", "bfloat16"):
        request = Request(platform, dtype, *shape[1:])
        keys = jax.random.split(jax.random.key(0), 3)
        vectors = [jax.random.normal(key, shape).astype(dtype) for key in keys]
        peer_seconds = _torch_seconds(shape, dtype, size.repeats)
        for name, implementation in IMPLEMENTATIONS.items():
            is_interpreted = isinstance(implementation, Fused) and platform == "cpu"
            if is_interpreted or implementation.why_not(request) is not None:
                continue
            gradient = _gradient(implementation)
            seconds = median_seconds(partial(gradient, *vectors, ids), size.repeats)
            rate = size.rows * size.length / seconds
            peer_rate = peer_seconds and size.rows * size.length / peer_seconds
            title = f"{name} {dtype}"
            yield Measurement("attention", title, rate, "tokens/s", _PEER, peer_rate)


def _gradient(implementation: Implementation) -> Callable[..., tuple[jax.Array, ...]]:
    """Returns a function that computes the gradients of query, key and value."""

    def loss(query: jax.Array, key: jax.Array, value: jax.Array, ids: jax.Array) -> jax.Array:
        operands = Operands(query, key, value, Mask(ids, ids))
        return implementation.attend(operands).astype(jnp.float32).sum()

    return jax.jit(jax.grad(loss, (0, 1, 2)))


def _torch_seconds(shape: tuple[int, ...], dtype: str, repeats: int) -> float | None:
    """Measures PyTorch's attention.

    Args:
      shape: the shape of queries, keys and values in xlj, [rows, length, heads, size].

    Returns:
      Seconds; None if PyTorch is not installed or GPU memory is too small.
    """
    torch = library("torch")
    if torch is None:
        return None
    rows, length, heads, width = shape
    options = {"device": torch_device(), "dtype": getattr(torch, dtype), "requires_grad": True}
    vectors = [torch.randn(rows, heads, length, width, **options) for _ in range(3)]
    attend = torch.nn.functional.scaled_dot_product_attention

    def call() -> None:
        loss = attend(*vectors).float().sum()
        torch.autograd.grad(loss, vectors)[0].flatten()[0].item()

    return torch_median_seconds(call, repeats)
