"""Measures the speed of the implementations of attention, forward and backward."""

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp

from xlj.config import Config
from xlj.models.dense_attention import dense_attention
from xlj.models.fused_attention import attend as fused
from xlj.sharding import devices
from xlj.tools.benchmarking.measurements import Measurement, Size, median_seconds
from xlj.tools.benchmarking.peers import library, torch_device, torch_median_seconds

_PEER = "torch's SDPA"


def measure_attention(config: Config, size: Size) -> Iterator[Measurement]:
    """Measures each implementation of attention in float32 and bfloat16, without the projections of
    a layer."""
    model = config.model
    shape = size.rows, size.length, model.heads, model.hidden // model.heads
    paths: dict[str, Callable[..., jax.Array]] = {"dense": dense_attention}
    if devices.platform() in fused.KERNELS:
        paths["fused"] = fused.attend
    ids = jnp.ones(shape[:2], jnp.int32)
    for dtype in ("float32", "bfloat16"):
        keys = jax.random.split(jax.random.key(0), 3)
        vectors = [jax.random.normal(key, shape).astype(dtype) for key in keys]
        peer_seconds = _torch_seconds(shape, dtype, size.repeats)
        for name, path in paths.items():
            seconds = median_seconds(partial(_gradient(path), *vectors, ids), size.repeats)
            rate = size.rows * size.length / seconds
            peer_rate = peer_seconds and size.rows * size.length / peer_seconds
            title = f"{name} {dtype}"
            yield Measurement("attention", title, rate, "tokens/s", _PEER, peer_rate)


def _gradient(path: Callable[..., jax.Array]) -> Callable[..., tuple[jax.Array, ...]]:
    """Returns a function that computes the gradients of query, key and value."""

    def loss(query: jax.Array, key: jax.Array, value: jax.Array, ids: jax.Array) -> jax.Array:
        return path(query, key, value, ids, ids).astype(jnp.float32).sum()

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
