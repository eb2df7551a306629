"""Attention with the scores of one chunk of queries in memory at a time, on any platform.

A loop runs over chunks of queries. The backward pass computes the scores of a chunk again. So
memory is linear in the length of a row, without a kernel.
"""

import dataclasses

import jax
import jax.numpy as jnp

from xlj.models.attention import interface, reference, tiles
from xlj.models.attention.interface import Costs, Operands, Request

_CHUNK = 128
"""Number of queries in a chunk. No machine has measured other numbers."""
_DENSE_UP_TO = 1024
"""The length up to which `auto` prefers dense attention. No machine has measured chunks, so this
only bounds memory: the scores of 12 heads and 1,024 tokens take 48 MiB for each row and layer."""


class QueryChunks(interface.Implementation):
    """Attention in a loop over chunks of queries. It computes every request."""

    def why_slower(self, request: Request) -> str | None:
        """Returns why `auto` prefers another implementation: CPUs, and short rows."""
        if request.platform == "cpu":
            return "not measured on CPUs"
        if request.length <= _DENSE_UP_TO:
            return f"only for rows of more than {_DENSE_UP_TO:,} tokens"
        return None

    def bias_block(self, request: Request) -> int:
        """Returns the number of queries in a chunk."""
        return _CHUNK

    def costs(self, request: Request) -> Costs:
        """Returns operations and bytes. The backward pass first repeats the forward pass."""
        padded = request._replace(length=interface.count_blocks(request.length, _CHUNK) * _CHUNK)
        return interface.costs_of(padded, (2, 6), request.length, weights=2)

    def attend(self, operands: Operands) -> jax.Array:
        """Computes attention (`Implementation.attend`)."""
        operands.check(_CHUNK)
        mask, bias, gates, dtype = (
            operands.mask,
            operands.bias,
            operands.gates,
            operands.query.dtype,
        )
        length = operands.query.shape[1]
        options = reference.Options(Chunk(), operands.rate, mask.narrowing is not None)
        # In float32, so that the sum of the chunks' gradients is not rounded in every iteration.
        key, value = (x.swapaxes(1, 2).astype(jnp.float32) for x in (operands.key, operands.value))

        def of_chunk(_: None, chunk: tuple[jax.Array, ...]) -> tuple[None, jax.Array]:
            number, query, ids, gates = chunk
            first = number * _CHUNK
            of_queries = None if bias is None else _bias_of(bias, number, length)
            visible = mask.of_queries(ids, first)[:, None]
            heads = query, key.astype(dtype), value.astype(dtype)
            inputs = reference.Inputs(*heads, of_queries, gates, visible, operands.seeds, first)
            return None, reference.attend_in_layout(inputs, options)

        chunks = (
            jnp.arange(interface.count_blocks(length, _CHUNK), dtype=jnp.int32),
            _split(operands.query.swapaxes(1, 2), 2, 0),  # [chunks, rows, heads, chunk, size]
            _split(mask.query_segment_ids, 1, tiles.NO_QUERY),
            None if gates is None else _split(gates, 2, 0),
        )
        _, output = jax.lax.scan(jax.checkpoint(of_chunk, prevent_cse=False), None, chunks)
        output = output.transpose(1, 0, 3, 2, 4)  # [rows, chunks, chunk, heads, size]
        return output.reshape(len(output), -1, *output.shape[3:])[:, :length]


@dataclasses.dataclass(frozen=True)
class Chunk(reference.AllPairs):
    """The layout of the scores of a chunk of queries: [rows, heads, chunk, length]."""

    def drop(
        self, weights: jax.Array, seeds: jax.Array, rate: float, first: jax.Array | None
    ) -> jax.Array:
        """Applies dropout to weights float32 [rows, heads, chunk, length]."""
        assert first is not None
        queries = first + jnp.arange(weights.shape[2], dtype=jnp.int32)
        keys = jnp.arange(weights.shape[3], dtype=jnp.int32)
        return tiles.drop(weights, seeds, queries[:, None], keys[None], rate)


def _split(x: jax.Array, axis: int, fill: int) -> jax.Array:
    """Divides an axis into chunks, which become the first axis; `fill` fills up the last chunk."""
    widths = [(0, -x.shape[axis] % _CHUNK if number == axis else 0) for number in range(x.ndim)]
    padded = jnp.pad(x, widths, constant_values=fill)
    chunked = padded.reshape(*x.shape[:axis], -1, _CHUNK, *x.shape[axis + 1 :])
    return jnp.moveaxis(chunked, axis, 0)


def _bias_of(bias: jax.Array, number: jax.Array, length: int) -> jax.Array:
    """Returns the bias of a chunk of queries, float32 [heads, chunk, length], from its tiles."""
    count = (bias.shape[1] + 1) // 2
    near = jax.lax.dynamic_slice_in_dim(bias, count - 1 - number, count, axis=1)
    return near.swapaxes(1, 2).reshape(len(bias), _CHUNK, -1)[..., :length]
