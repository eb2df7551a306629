"""Attention kernels for NVIDIA GPUs from Ampere on, in Pallas Triton; tiles are [queries, keys].

The loops are those of FlashAttention-2 (Dao, 2023): a program computes the outputs, or the
gradients, of one block. There is one kernel for the gradient of queries, one for keys and values,
and one for the bias. So all sums have a fixed order, which sums with atomics would not have.

Index i counts blocks of queries, index j blocks of keys.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Ref
from jax.experimental import pallas as pl
from jax.typing import DTypeLike

from xlj.models import pallas
from xlj.models.attention import interface, tiles
from xlj.models.attention.interface import Request
from xlj.models.attention.tiles import Bounds, Carry, Inputs, OptionalRef, Shaped, Sizes

Refs = tuple[OptionalRef, ...]
_PARTS = 4
"""Number of programs among which the rows are divided to sum the gradient of the bias."""


PLATFORM = "gpu"
PRODUCTS = {
    "attention": 2,
    "attention_of_query": 3,
    "attention_of_key": 4,
    "attention_of_bias": 2,
}
_DENSE_UP_TO = 512
"""The length up to which dense attention is faster in float32.

Measured on an H200 with 32 rows of 512 tokens and 12 heads of size 64, forward and backward,
without bias, dropout and window (docs/benchmarks.md): in float32, the kernels process 0.85 million
tokens/s, dense attention 5.4 million. Longer rows were not measured. There the kernels are used,
since their memory is linear in the length. In bfloat16, dense attention was not measured. The
kernels process 21.0 million tokens/s, as many as torch's attention, and are used at any length.
"""


def why_not(request: Request) -> str | None:
    """Returns why the kernels cannot compute a request; None if they can."""
    return pallas.why_no_triton()


def why_slower(request: Request) -> str | None:
    """Returns why `auto` prefers another implementation: short rows in float32."""
    if request.dtype == "float32" and request.length <= _DENSE_UP_TO:
        return f"slow in float32, for rows of up to {_DENSE_UP_TO} tokens"
    return None


def head_size(size: int) -> int:
    """Returns the size to which heads are padded.

    Triton multiplies only matrices whose sides are powers of 2 and at least 16.
    """
    return max(16, pl.next_power_of_2(size))


def block(size: int, dtype: DTypeLike) -> int:
    """Returns the number of queries, and of keys, in a tile.

    It is 64, or 32 for heads that are so large that tiles of 64 would not fit into the shared
    memory of a B200.
    """
    return 64 if head_size(size) * jnp.dtype(dtype).itemsize <= 256 else 32


def _stages(query: jax.Array) -> int:
    """Returns how many tiles of keys are in shared memory at a time.

    Three tiles are faster than two. Two are used where three would exceed an A100's shared memory.

    Args:
      query: [rows, length, heads, size].
    """
    size, dtype = query.shape[3], query.dtype
    return 3 if block(size, dtype) * size * dtype.itemsize <= 16_384 else 2


def forward(
    sizes: Sizes, scale: float, inputs: Inputs, bias: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Computes the output, and the log-sums that `backward` needs.

    Args:
      scale: factor of the scores.
      bias: float32 [heads, 2 length / block - 1, block, block]: a tile for each distance of blocks;
        None for no bias.

    Returns:
      The output, [rows, length, heads, size] in the dtype of the query. For each query, the log of
      the sum of exponentials of its scores, float32 [rows, heads, length].
    """
    query, key, value, query_ids, key_ids, seeds, gates = inputs
    ids = query_ids, key_ids
    block, bounds = sizes.block, tiles.bounds(*ids, sizes.block, sizes.window)
    count = query.shape[1] // block
    call = partial(_call, sizes, _stages(query))

    def kernel(q_ref: Ref, k_ref: Ref, v_ref: Ref, *refs: OptionalRef) -> None:
        (q_ids, k_ids, first, end, seed, bias_ref, gate_ref), (out_ref, log_ref) = _split(refs, 7)
        i = pl.program_id(2)
        here = pl.ds(i * block, block)
        q, ids_of_q, gate = q_ref[...], q_ids[here][:, None], _gate(gate_ref, here)  # q: [block, d]
        seed = seed[pl.program_id(1)]

        def body(j: jax.Array, carry: Carry) -> Carry:
            out, largest, total = carry
            there = pl.ds(j * block, block)
            scores = tiles.dot(q, k_ref[there, :], (1, 1)) * scale  # [queries, keys]
            if bias_ref is not None:
                scores = scores + bias_ref[j - i + count - 1] * gate
            visible = _visible(sizes, ids_of_q, k_ids[there][None, :], i, j)  # [queries, keys]
            new = jnp.maximum(largest, jnp.where(visible, scores, tiles.NEGATIVE).max(1))
            weights = tiles.exponentials(scores, visible, new[:, None])  # [queries, keys]
            shrink = jnp.exp(largest - new)  # [queries], like new and total
            total = total * shrink + weights.sum(1)
            if sizes.rate:
                weights *= tiles.keep_factors(seed, *_positions(i, j, block), sizes.rate)
            v = v_ref[there, :]
            out = out * shrink[:, None] + tiles.dot(
                weights.astype(v.dtype), v, (1, 0)
            )  # [block, d]
            return out, new, total

        empty = jnp.full((block,), tiles.NEGATIVE, jnp.float32)
        carry = jnp.zeros(q.shape, jnp.float32), empty, jnp.zeros((block,), jnp.float32)
        out, largest, total = jax.lax.fori_loop(first[i], end[i], body, carry)
        out_ref[...] = (out / jnp.where(total > 0, total, 1.0)[:, None]).astype(out_ref.dtype)
        log_ref[...] = tiles.log_sum(largest, total)

    rows, length, heads, _ = query.shape
    one, whole = _one_block(query, block), _all_blocks(query)
    output, logs = call(
        kernel,
        "attention",
        (rows, heads, count),
        [one, whole, whole, *_row_specs(ids, bounds, seeds, bias, gates)],
        [query, key, value, *ids, bounds.first_key, bounds.end_key, seeds, bias, gates],
        [one, pl.BlockSpec((None, None, block), lambda r, h, i: (r, h, i))],
        [query, jax.ShapeDtypeStruct((rows, heads, length), jnp.float32)],
    )
    return output, logs


def backward(
    sizes: Sizes,
    scale: float,
    inputs: Inputs,
    bias: jax.Array | None,
    output: jax.Array,
    logs: jax.Array,
    gradient: jax.Array,
) -> tuple[jax.Array | None, ...]:
    """Computes the gradients of query, key, value, bias and gates; None without bias or gates.

    The function is long because its three kernels share block specifications and the computation of
    a tile.

    Args:
      sizes, scale, inputs, bias: the arguments of `forward`.
      output: the output of `forward`, [rows, length, heads, size].
      logs: the log-sums of `forward`, float32 [rows, heads, length].
      gradient: of the output, [rows, length, heads, size].
    """
    query, key, value, query_ids, key_ids, seeds, gates = inputs
    ids = query_ids, key_ids
    rows, length, heads, _ = query.shape
    block, bounds = sizes.block, tiles.bounds(*ids, sizes.block, sizes.window)
    count = length // block
    call = partial(_call, sizes, _stages(query))
    inner = (output.astype(jnp.float32) * gradient.astype(jnp.float32)).sum(-1)
    inner = inner.swapaxes(1, 2)  # [rows, heads, length]

    def tile(
        i: jax.Array, j: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array, do: jax.Array,
        ids_of_q: jax.Array, ids_of_k: jax.Array, log: jax.Array, inner: jax.Array,
        seed: jax.Array, bias: jax.Array | None, gate: jax.Array | float,
    ) -> tuple[jax.Array, jax.Array]:  # fmt: skip
        """Returns probabilities after dropout, and the gradient of the scores, [block, block]."""
        scores = tiles.dot(q, k, (1, 1)) * scale  # [queries, keys], the shape of all tiles below
        if bias is not None:
            scores = scores + bias * gate
        visible = _visible(sizes, ids_of_q[:, None], ids_of_k[None, :], i, j)
        weights = tiles.exponentials(scores, visible, log[:, None])
        grad_weights = tiles.dot(do, v, (1, 1))
        dropped = weights
        if sizes.rate:
            factors = tiles.keep_factors(seed, *_positions(i, j, block), sizes.rate)
            dropped, grad_weights = weights * factors, grad_weights * factors
        return dropped, tiles.compute_grad_scores(
            weights, grad_weights, inner[:, None], visible, sizes.window
        )

    def compute_grad_query(
        q_ref: Ref, k_ref: Ref, v_ref: Ref, do_ref: Ref, *refs: OptionalRef
    ) -> None:
        in_refs, out_refs = _split(refs, 9)
        q_ids, k_ids, first, end, seed, bias_ref, gate_ref, log_ref, inner_ref = in_refs
        i = pl.program_id(2)
        here = pl.ds(i * block, block)
        q, do, gate = q_ref[...], do_ref[...], _gate(gate_ref, here)
        query_block = (q_ids[here], log_ref[here], inner_ref[here], seed[pl.program_id(1)])

        def body(j: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            grad_q, grad_gate = carry
            there = pl.ds(j * block, block)
            k, ids_of_q, log, inner, seed = k_ref[there, :], *query_block
            biased = None if bias_ref is None else bias_ref[j - i + count - 1]
            _, grad_scores = tile(
                i, j, q, k, v_ref[there, :], do, ids_of_q, k_ids[there], log, inner, seed,
                biased, gate,
            )  # fmt: skip
            if gate_ref is not None and biased is not None:
                grad_gate += (grad_scores * biased).sum(1)  # [queries]
            return grad_q + tiles.dot(grad_scores.astype(k.dtype), k, (1, 0)), grad_gate

        carry = jnp.zeros(q.shape, jnp.float32), jnp.zeros((block,), jnp.float32)
        grad_q, grad_gate = jax.lax.fori_loop(first[i], end[i], body, carry)
        out_refs[0][...] = (grad_q * scale).astype(out_refs[0].dtype)
        if gate_ref is not None:
            out_refs[1][...] = grad_gate

    def compute_grad_key(
        q_ref: Ref, k_ref: Ref, v_ref: Ref, do_ref: Ref, *refs: OptionalRef
    ) -> None:
        in_refs, (grad_k_ref, grad_v_ref) = _split(refs, 9)
        q_ids, k_ids, first, end, seed, bias_ref, gate_ref, log_ref, inner_ref = in_refs
        j = pl.program_id(2)
        k, v, ids_of_k = k_ref[...], v_ref[...], k_ids[pl.ds(j * block, block)]
        seed = seed[pl.program_id(1)]

        def body(i: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            grad_k, grad_v = carry
            there = pl.ds(i * block, block)
            q, do = q_ref[there, :], do_ref[there, :]
            biased = None if bias_ref is None else bias_ref[j - i + count - 1]
            dropped, grad_scores = tile(
                i, j, q, k, v, do, q_ids[there], ids_of_k, log_ref[there], inner_ref[there], seed,
                biased, _gate(gate_ref, there),
            )  # fmt: skip
            grad_v += tiles.dot(dropped.T.astype(do.dtype), do, (1, 0))  # [block, d]
            return grad_k + tiles.dot(grad_scores.T.astype(q.dtype), q, (1, 0)), grad_v

        zeros = jnp.zeros(k.shape, jnp.float32)
        grad_k, grad_v = jax.lax.fori_loop(first[j], end[j], body, (zeros, zeros))
        grad_k_ref[...] = (grad_k * scale).astype(grad_k_ref.dtype)
        grad_v_ref[...] = grad_v.astype(grad_v_ref.dtype)

    def compute_grad_bias(
        q_ref: Ref, k_ref: Ref, v_ref: Ref, do_ref: Ref, *refs: OptionalRef
    ) -> None:
        """Sums the gradient of the bias at one distance of blocks over a part of the rows."""
        in_refs, (out_ref,) = _split(refs, 9)
        q_ids, k_ids, first, end, seeds, bias_ref, gate_ref, log_ref, inner_ref = in_refs
        head, distance, part = pl.program_id(0), pl.program_id(1) - (count - 1), pl.program_id(2)
        biased = bias_ref[...]

        def add_row(number: jax.Array, total: jax.Array) -> jax.Array:
            r = number * _PARTS + part

            def add_block(i: jax.Array, total: jax.Array) -> jax.Array:
                j = i + distance
                here, there = pl.ds(i * block, block), pl.ds(j * block, block)

                def visit(_: jax.Array, total: jax.Array) -> jax.Array:
                    gate = 1.0 if gate_ref is None else gate_ref[r, here][:, None]
                    _, grad_scores = tile(
                        i, j, q_ref[r, here, :], k_ref[r, there, :], v_ref[r, there, :],
                        do_ref[r, here, :], q_ids[r, here], k_ids[r, there], log_ref[r, here],
                        inner_ref[r, here], seeds[r, head], biased, gate,
                    )  # fmt: skip
                    return total + grad_scores * gate

                is_visited = (first[r, i] <= j) & (j < end[r, i])
                return jax.lax.fori_loop(0, is_visited.astype(jnp.int32), visit, total)

            start, stop = jnp.maximum(0, -distance), jnp.minimum(count, count - distance)
            return jax.lax.fori_loop(start, stop, add_block, total)

        rows_of_part = (rows - part + _PARTS - 1) // _PARTS
        total = jnp.zeros((block, block), jnp.float32)
        out_ref[...] = jax.lax.fori_loop(0, rows_of_part, add_row, total)

    one, whole = _one_block(query, block), _all_blocks(query)
    vector = pl.BlockSpec((None, None, length), lambda r, h, i: (r, h, 0))
    block_spec = pl.BlockSpec((None, None, block), lambda r, h, i: (r, h, i))
    shared = [*_row_specs(ids, bounds, seeds, bias, gates), vector, vector]
    grid = (rows, heads, count)
    grad_q, *grad_gates = call(
        compute_grad_query,
        "attention_of_query",
        grid,
        [one, whole, whole, one, *shared],
        [query, key, value, gradient, *ids, bounds.first_key, bounds.end_key, seeds, bias, gates]
        + [logs, inner],
        [one] + [block_spec] * (gates is not None),
        [query] + ([] if gates is None else [gates]),
    )
    grad_k, grad_v = call(
        compute_grad_key,
        "attention_of_key",
        grid,
        [whole, one, one, whole, *shared],
        [query, key, value, gradient, *ids, bounds.first_query, bounds.end_query]
        + [seeds, bias, gates, logs, inner],
        [one, one],
        [key, value],
    )
    if bias is None:
        return grad_q, grad_k, grad_v, None, None
    head_spec = pl.BlockSpec((*query.shape[:2], None, query.shape[3]), lambda h, d, p: (0, 0, h, 0))
    every = pl.BlockSpec((rows, None, length), lambda h, d, p: (0, h, 0))
    per_row = [pl.BlockSpec(x.shape, lambda h, d, p: (0, 0)) for x in (*ids, *bounds[:2], seeds)]
    (grad_tiles,) = call(
        compute_grad_bias,
        "attention_of_bias",
        (heads, bias.shape[1], _PARTS),
        [head_spec] * 4
        + per_row
        + [pl.BlockSpec((None, None, block, block), lambda h, d, p: (h, d, 0, 0))]
        + [None if gates is None else every, every, every],
        [query, key, value, gradient, *ids, bounds.first_key, bounds.end_key, seeds, bias, gates]
        + [logs, inner],
        [pl.BlockSpec((None, None, None, block, block), lambda h, d, p: (h, d, p, 0, 0))],
        [jax.ShapeDtypeStruct((heads, bias.shape[1], _PARTS, block, block), jnp.float32)],
    )
    return grad_q, grad_k, grad_v, grad_tiles.sum(2), grad_gates[0] if grad_gates else None


def _gate(gate_ref: OptionalRef, here: slice | pl.Slice) -> jax.Array | float:
    """Returns the gates of some queries as a column [block, 1], or 1 without gates."""
    return 1.0 if gate_ref is None else gate_ref[here][:, None]


def _visible(
    sizes: Sizes, ids_of_q: jax.Array, ids_of_k: jax.Array, i: jax.Array, j: jax.Array
) -> jax.Array:
    """Returns which keys of block j the queries of block i see: bool [queries, keys].

    Args:
      ids_of_q: segment ids of the queries, int32 [block, 1].
      ids_of_k: segment ids of the keys, int32 [1, block].
    """
    visible = ids_of_q == ids_of_k
    if sizes.window is None:
        return visible
    return visible & interface.is_within(*_positions(i, j, sizes.block), sizes.window)


def _positions(i: jax.Array, j: jax.Array, block: int) -> tuple[jax.Array, jax.Array]:
    """Returns the positions in a row of the queries of block i, and of the keys of block j.

    Returns:
      int32 [block, 1] for the queries, and int32 [1, block] for the keys.
    """
    place = jnp.arange(block, dtype=jnp.int32)
    return (i * block + place)[:, None], (j * block + place)[None, :]


def _split(refs: Refs, inputs: int) -> tuple[Refs, Refs]:
    """Divides a kernel's references into inputs and outputs; `inputs` is the number of inputs."""
    return refs[:inputs], refs[inputs:]


def _one_block(x: jax.Array, block: int) -> pl.BlockSpec:
    """Returns the spec of one block of a head in a row."""
    return pl.BlockSpec((None, block, None, x.shape[3]), lambda r, h, i: (r, i, h, 0))


def _all_blocks(x: jax.Array) -> pl.BlockSpec:
    """Returns the spec of all blocks of a head in a row."""
    return pl.BlockSpec((None, x.shape[1], None, x.shape[3]), lambda r, h, i: (r, 0, h, 0))


def _row_specs(
    ids: tuple[jax.Array, jax.Array],
    bounds: Bounds,
    seeds: jax.Array,
    bias: jax.Array | None,
    gates: jax.Array | None,
) -> list[pl.BlockSpec | None]:
    """Returns the specs of segment ids, bounds, seeds, bias and gates."""
    row_specs = [
        pl.BlockSpec((None, x.shape[1]), lambda r, h, i: (r, 0)) for x in (*ids, *bounds[:2], seeds)
    ]
    bias_spec = gates_spec = None
    if bias is not None:
        bias_spec = pl.BlockSpec((None, *bias.shape[1:]), lambda r, h, i: (h, 0, 0, 0))
    if gates is not None:
        gates_spec = pl.BlockSpec((None, None, gates.shape[2]), lambda r, h, i: (r, h, 0))
    return [*row_specs, bias_spec, gates_spec]


def _call(
    sizes: Sizes,
    stages: int,
    kernel: Callable[..., None],
    name: str,
    grid: tuple[int, ...],
    specs: Sequence[pl.BlockSpec | None],
    inputs: Sequence[jax.Array | None],
    out_specs: Sequence[pl.BlockSpec],
    outputs: Sequence[Shaped],
) -> list[jax.Array]:
    """Runs a kernel.

    Args:
      stages: number of tiles of keys that are in shared memory at a time.
      name: the name of the kernel in compiled programs. If there is a window, the name gets a
        suffix (`Sizes.kernel_name`).
      specs, out_specs: blocks of inputs and outputs.
      outputs: arrays with the shapes and dtypes of the outputs.
    """
    arrays = [*(x for x in inputs if x is not None), *outputs]
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=specs,
        out_specs=out_specs,
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs],
        compiler_params=pallas.triton.CompilerParams(num_warps=4, num_stages=stages),
        interpret=sizes.interpret,
        cost_estimate=sizes.cost(PRODUCTS[name], arrays, arrays[0]),
        name=sizes.kernel_name(name),
    )(*inputs)
