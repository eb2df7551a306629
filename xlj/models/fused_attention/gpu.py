"""The kernels for NVIDIA GPUs from Ampere on, in Pallas Triton; tiles lie [queries, keys].

FlashAttention-2's loops (Dao, 2023): a program makes the outputs, or the gradients, of one block.
Each gradient has a kernel of its own, so that nothing is summed by atomics in an order of chance.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Ref
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.typing import DTypeLike

from xlj.models.fused_attention import tiles
from xlj.models.fused_attention.tiles import Bounds, Carry, GivenRef, Inputs, Shaped, Sizes

Two = tuple[jax.Array, jax.Array]
Refs = tuple[GivenRef, ...]
_PARTS = 4
"""In how many parts rows are summed for the gradient of the bias."""


def head_size(size: int) -> int:
    """The size that heads are filled up to: Triton's products take powers of 2 from 16 on."""
    return max(16, pl.next_power_of_2(size))


def block(size: int, dtype: DTypeLike) -> int:
    """Queries and keys of a tile: half as many where 64 vectors exceed a B200's shared memory."""
    return 64 if head_size(size) * jnp.dtype(dtype).itemsize <= 256 else 32


def _stages(query: jax.Array) -> int:
    """How many tiles of keys are loaded at a time; three are faster than two, and exceed an A100's
    shared memory if they are large."""
    size, dtype = query.shape[3], query.dtype
    return 3 if block(size, dtype) * size * dtype.itemsize <= 16_384 else 2


def forward(
    sizes: Sizes, scale: float, inputs: Inputs, bias: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Attention's output [rows, length, heads, size] and log-sums float32 [rows, heads, length].

    Args:
      bias: float32 [heads, 2 length / block - 1, block, block]: the tiles of each distance.
    """
    query, key, value, of_queries, of_keys, seeds, gates = inputs
    ids = of_queries, of_keys
    block, found = sizes.block, tiles.bounds(*ids, sizes.block, sizes.window)
    count = query.shape[1] // block
    call = partial(_call, sizes, _stages(query))

    def kernel(q_ref: Ref, k_ref: Ref, v_ref: Ref, *refs: GivenRef) -> None:
        (q_ids, k_ids, first, end, seed, bias_ref, gate_ref), (out_ref, log_ref) = _split(refs, 7)
        i = pl.program_id(2)
        here = pl.ds(i * block, block)
        q, ids_of_q, gate = q_ref[...], q_ids[here][:, None], _gate(gate_ref, here)
        seed = seed[pl.program_id(1)]

        def body(j: jax.Array, carry: Carry) -> Carry:
            out, largest, total = carry
            there = pl.ds(j * block, block)
            scores = tiles.dot(q, k_ref[there, :], (1, 1)) * scale
            if bias_ref is not None:
                scores = scores + bias_ref[j - i + count - 1] * gate
            seen = _seen(sizes, ids_of_q, k_ids[there][None, :], i, j)
            new = jnp.maximum(largest, jnp.where(seen, scores, tiles.NEGATIVE).max(1))
            weights = tiles.exponentials(scores, seen, new[:, None])
            shrink = jnp.exp(largest - new)
            total = total * shrink + weights.sum(1)
            if sizes.rate:
                weights *= tiles.keeps(seed, *_places(i, j, block), sizes.rate)
            v = v_ref[there, :]
            out = out * shrink[:, None] + tiles.dot(weights.astype(v.dtype), v, (1, 0))
            return out, new, total

        empty = jnp.full((block,), tiles.NEGATIVE, jnp.float32)
        carry = jnp.zeros(q.shape, jnp.float32), empty, jnp.zeros((block,), jnp.float32)
        out, largest, total = jax.lax.fori_loop(first[i], end[i], body, carry)
        out_ref[...] = (out / jnp.where(total > 0, total, 1.0)[:, None]).astype(out_ref.dtype)
        log_ref[...] = tiles.log_sum(largest, total)

    rows, length, heads, _ = query.shape
    mine, whole = _one(query, block), _all(query)
    output, logs = call(
        kernel,
        "attention",
        (rows, heads, count),
        [mine, whole, whole, *_row_specs(ids, found, seeds, bias, gates)],
        [query, key, value, *ids, found.first_key, found.end_key, seeds, bias, gates],
        [mine, pl.BlockSpec((None, None, block), lambda r, h, i: (r, h, i))],
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
    """The gradients of query, key, value, bias and gates; arguments and what `forward` returned.

    Long, since its three kernels make the same tiles of the same blocks.
    """
    query, key, value, of_queries, of_keys, seeds, gates = inputs
    ids = of_queries, of_keys
    rows, length, heads, _ = query.shape
    block, found = sizes.block, tiles.bounds(*ids, sizes.block, sizes.window)
    count = length // block
    call = partial(_call, sizes, _stages(query))
    inner = (output.astype(jnp.float32) * gradient.astype(jnp.float32)).sum(-1).swapaxes(1, 2)

    def tile(
        i: jax.Array, j: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array, do: jax.Array,
        ids_of_q: jax.Array, ids_of_k: jax.Array, log: jax.Array, inner: jax.Array,
        seed: jax.Array, bias: jax.Array | None, gate: jax.Array | float,
    ) -> Two:  # fmt: skip
        """The probabilities after dropout, and the gradient of the scores, both [block, block]."""
        scores = tiles.dot(q, k, (1, 1)) * scale
        if bias is not None:
            scores = scores + bias * gate
        seen = _seen(sizes, ids_of_q[:, None], ids_of_k[None, :], i, j)
        weights = tiles.exponentials(scores, seen, log[:, None])
        of_weights = tiles.dot(do, v, (1, 1))
        kept = weights
        if sizes.rate:
            keeps = tiles.keeps(seed, *_places(i, j, block), sizes.rate)
            kept, of_weights = weights * keeps, of_weights * keeps
        return kept, tiles.of_scores(weights, of_weights, inner[:, None], seen, sizes.window)

    def of_query(q_ref: Ref, k_ref: Ref, v_ref: Ref, do_ref: Ref, *refs: GivenRef) -> None:
        taken, given = _split(refs, 9)
        q_ids, k_ids, first, end, seed, bias_ref, gate_ref, log_ref, inner_ref = taken
        i = pl.program_id(2)
        here = pl.ds(i * block, block)
        q, do, gate = q_ref[...], do_ref[...], _gate(gate_ref, here)
        mine = (q_ids[here], log_ref[here], inner_ref[here], seed[pl.program_id(1)])

        def body(j: jax.Array, carry: Two) -> Two:
            of_q, of_gate = carry
            there = pl.ds(j * block, block)
            k, ids_of_q, log, inner, seed = k_ref[there, :], *mine
            biased = None if bias_ref is None else bias_ref[j - i + count - 1]
            _, of_scores = tile(
                i, j, q, k, v_ref[there, :], do, ids_of_q, k_ids[there], log, inner, seed,
                biased, gate,
            )  # fmt: skip
            if gate_ref is not None and biased is not None:
                of_gate += (of_scores * biased).sum(1)
            return of_q + tiles.dot(of_scores.astype(k.dtype), k, (1, 0)), of_gate

        carry = jnp.zeros(q.shape, jnp.float32), jnp.zeros((block,), jnp.float32)
        of_q, of_gate = jax.lax.fori_loop(first[i], end[i], body, carry)
        given[0][...] = (of_q * scale).astype(given[0].dtype)
        if gate_ref is not None:
            given[1][...] = of_gate

    def of_key(q_ref: Ref, k_ref: Ref, v_ref: Ref, do_ref: Ref, *refs: GivenRef) -> None:
        taken, (of_k_ref, of_v_ref) = _split(refs, 9)
        q_ids, k_ids, first, end, seed, bias_ref, gate_ref, log_ref, inner_ref = taken
        j = pl.program_id(2)
        k, v, ids_of_k = k_ref[...], v_ref[...], k_ids[pl.ds(j * block, block)]
        seed = seed[pl.program_id(1)]

        def body(i: jax.Array, carry: Two) -> Two:
            of_k, of_v = carry
            there = pl.ds(i * block, block)
            q, do = q_ref[there, :], do_ref[there, :]
            biased = None if bias_ref is None else bias_ref[j - i + count - 1]
            kept, of_scores = tile(
                i, j, q, k, v, do, q_ids[there], ids_of_k, log_ref[there], inner_ref[there], seed,
                biased, _gate(gate_ref, there),
            )  # fmt: skip
            of_v += tiles.dot(kept.T.astype(do.dtype), do, (1, 0))
            return of_k + tiles.dot(of_scores.T.astype(q.dtype), q, (1, 0)), of_v

        nothing = jnp.zeros(k.shape, jnp.float32)
        of_k, of_v = jax.lax.fori_loop(first[j], end[j], body, (nothing, nothing))
        of_k_ref[...] = (of_k * scale).astype(of_k_ref.dtype)
        of_v_ref[...] = of_v.astype(of_v_ref.dtype)

    def of_bias(q_ref: Ref, k_ref: Ref, v_ref: Ref, do_ref: Ref, *refs: GivenRef) -> None:
        """Of one distance of blocks: its tiles of some rows are summed where they are made."""
        taken, (out_ref,) = _split(refs, 9)
        q_ids, k_ids, first, end, seeds, bias_ref, gate_ref, log_ref, inner_ref = taken
        head, distance, part = pl.program_id(0), pl.program_id(1) - (count - 1), pl.program_id(2)
        biased = bias_ref[...]

        def of_row(number: jax.Array, total: jax.Array) -> jax.Array:
            r = number * _PARTS + part

            def of_block(i: jax.Array, total: jax.Array) -> jax.Array:
                j = i + distance
                here, there = pl.ds(i * block, block), pl.ds(j * block, block)

                def visit(_: jax.Array, total: jax.Array) -> jax.Array:
                    gate = 1.0 if gate_ref is None else gate_ref[r, here][:, None]
                    _, of_scores = tile(
                        i, j, q_ref[r, here, :], k_ref[r, there, :], v_ref[r, there, :],
                        do_ref[r, here, :], q_ids[r, here], k_ids[r, there], log_ref[r, here],
                        inner_ref[r, here], seeds[r, head], biased, gate,
                    )  # fmt: skip
                    return total + of_scores * gate

                seen = (first[r, i] <= j) & (j < end[r, i])
                return jax.lax.fori_loop(0, seen.astype(jnp.int32), visit, total)

            start, stop = jnp.maximum(0, -distance), jnp.minimum(count, count - distance)
            return jax.lax.fori_loop(start, stop, of_block, total)

        mine = (rows - part + _PARTS - 1) // _PARTS
        total = jnp.zeros((block, block), jnp.float32)
        out_ref[...] = jax.lax.fori_loop(0, mine, of_row, total)

    mine, whole = _one(query, block), _all(query)
    vector = pl.BlockSpec((None, None, length), lambda r, h, i: (r, h, 0))
    of_block = pl.BlockSpec((None, None, block), lambda r, h, i: (r, h, i))
    shared = [*_row_specs(ids, found, seeds, bias, gates), vector, vector]
    grid = (rows, heads, count)
    of_q, *of_gates = call(
        of_query,
        "attention_of_query",
        grid,
        [mine, whole, whole, mine, *shared],
        [query, key, value, gradient, *ids, found.first_key, found.end_key, seeds, bias, gates]
        + [logs, inner],
        [mine] + [of_block] * (gates is not None),
        [query] + ([] if gates is None else [gates]),
    )
    of_k, of_v = call(
        of_key,
        "attention_of_key",
        grid,
        [whole, mine, mine, whole, *shared],
        [query, key, value, gradient, *ids, found.first_query, found.end_query, seeds, bias, gates]
        + [logs, inner],
        [mine, mine],
        [key, value],
    )
    if bias is None:
        return of_q, of_k, of_v, None, None
    of_head = pl.BlockSpec((*query.shape[:2], None, query.shape[3]), lambda h, d, p: (0, 0, h, 0))
    every = pl.BlockSpec((rows, None, length), lambda h, d, p: (0, h, 0))
    per_row = [pl.BlockSpec(x.shape, lambda h, d, p: (0, 0)) for x in (*ids, *found[:2], seeds)]
    (of_tiles,) = call(
        of_bias,
        "attention_of_bias",
        (heads, bias.shape[1], _PARTS),
        [of_head] * 4
        + per_row
        + [pl.BlockSpec((None, None, block, block), lambda h, d, p: (h, d, 0, 0))]
        + [None if gates is None else every, every, every],
        [query, key, value, gradient, *ids, found.first_key, found.end_key, seeds, bias, gates]
        + [logs, inner],
        [pl.BlockSpec((None, None, None, block, block), lambda h, d, p: (h, d, p, 0, 0))],
        [jax.ShapeDtypeStruct((heads, bias.shape[1], _PARTS, block, block), jnp.float32)],
    )
    return of_q, of_k, of_v, of_tiles.sum(2), of_gates[0] if of_gates else None


def _gate(gate_ref: GivenRef, here: slice | pl.Slice) -> jax.Array | float:
    return 1.0 if gate_ref is None else gate_ref[here][:, None]


def _seen(
    sizes: Sizes, ids_of_q: jax.Array, ids_of_k: jax.Array, i: jax.Array, j: jax.Array
) -> jax.Array:
    """Which keys of block j the queries of block i see: bool [block, block], of ids as a column and
    as a row."""
    seen = ids_of_q == ids_of_k
    if sizes.window is None:
        return seen
    return seen & tiles.is_within(*_places(i, j, sizes.block), sizes.window)


def _places(i: jax.Array, j: jax.Array, block: int) -> Two:
    place = jnp.arange(block, dtype=jnp.int32)
    return (i * block + place)[:, None], (j * block + place)[None, :]


def _split(refs: Refs, inputs: int) -> tuple[Refs, Refs]:
    return refs[:inputs], refs[inputs:]


def _one(x: jax.Array, block: int) -> pl.BlockSpec:
    """A block of a row's head."""
    return pl.BlockSpec((None, block, None, x.shape[3]), lambda r, h, i: (r, i, h, 0))


def _all(x: jax.Array) -> pl.BlockSpec:
    """All of a row's head."""
    return pl.BlockSpec((None, x.shape[1], None, x.shape[3]), lambda r, h, i: (r, 0, h, 0))


def _row_specs(
    ids: Two, found: Bounds, seeds: jax.Array, bias: jax.Array | None, gates: jax.Array | None
) -> list[pl.BlockSpec | None]:
    """Of segment ids, bounds, seeds, bias and gates."""
    of_row = [
        pl.BlockSpec((None, x.shape[1]), lambda r, h, i: (r, 0)) for x in (*ids, *found[:2], seeds)
    ]
    of_bias = of_gates = None
    if bias is not None:
        of_bias = pl.BlockSpec((None, *bias.shape[1:]), lambda r, h, i: (h, 0, 0, 0))
    if gates is not None:
        of_gates = pl.BlockSpec((None, None, gates.shape[2]), lambda r, h, i: (r, h, 0))
    return [*of_row, of_bias, of_gates]


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
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=specs,
        out_specs=out_specs,
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs],
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=stages),
        interpret=sizes.interpret,
        name=sizes.named(name),
    )(*inputs)
