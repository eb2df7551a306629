"""Attention kernels for TPUs, in Pallas Mosaic.

Tiles are [keys, queries], so that arrays with one number for each query are rows.

Heads are side by side in memory, as the projections return them. A program computes a group of
heads that fills 128 lanes. For each head, it sets the lanes of all other heads to 0 and multiplies
the full width. So heads are neither padded to 128 lanes nor transposed in memory.

Index g counts groups of heads, h heads of a group, r rows, i blocks of queries, j blocks of keys.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.typing import DTypeLike

from xlj.models.attention import interface, tiles
from xlj.models.attention.interface import Request
from xlj.models.attention.tiles import Carry, Inputs, OptionalRef, Shaped, Sizes

_LANES = 128
"""Number of lanes of a vector register."""
_MEMORY = 100 * 2**20
"""Largest number of bytes of VMEM that a kernel may use. A core has 128 MiB. The backward pass of
rows of 8,192 tokens uses half of this limit."""


PLATFORM = "tpu"
PRODUCTS = {"attention": 2, "attention_backward": 5}


def why_not(request: Request) -> str | None:
    """Returns why the kernels cannot compute a request; None if they can."""
    return "runs on TPUs" if request.platform == "gpu" else None


def why_slower(request: Request) -> str | None:
    """Returns None: no implementation was measured on TPUs."""
    return None


def head_size(size: int) -> int:
    """Returns the size to which heads are padded: a divisor or a multiple of `_LANES`."""
    return pl.next_power_of_2(size) if size <= _LANES else size + -size % _LANES


def block(size: int, dtype: DTypeLike) -> int:
    """Returns the number of queries, and of keys, in a tile: 128 for any head size and dtype."""
    return 128


def forward(
    sizes: Sizes, scale: float, inputs: Inputs, bias: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Computes the output, and the log-sums that `backward` needs.

    The function is long because the kernel's loops over blocks and heads use its arguments.

    Args:
      scale: factor of the scores.
      bias: float32 [heads, 2 length / block - 1, block, block]: a tile [queries, keys] for each
        distance of blocks; None for no bias.

    Returns:
      The output, [rows, length, heads, size] in the dtype of the query. For each query, the log of
      the sum of exponentials of its scores, float32 [rows, groups, heads of a group, length].
    """
    query, key, value, query_ids, key_ids, seeds, gates = inputs
    ids = query_ids, key_ids
    shape, block = query.shape, sizes.block
    count = shape[1] // block
    grouped = _Grouped(shape)
    group, size = grouped.heads, shape[3]

    def kernel(*refs: OptionalRef) -> None:
        first, end, seed, q_ref, k_ref, v_ref, q_ids, k_ids, bias_ref, gate_ref, *outs = refs
        out_ref, log_ref = outs
        g, r, i = (pl.program_id(axis) for axis in range(3))
        ids_of_q = q_ids[...]  # [1, block]
        every_q = q_ref[...]  # [block, lanes]
        by_lane = jnp.zeros((every_q.shape[1], block), jnp.float32)  # the output, transposed
        for h in range(group):
            q = _lanes_of(every_q, h, size)
            gate = _row(gate_ref, h, 0, block)
            head_seed = seed[r, g * group + h]

            def body(j: jax.Array, carry: Carry, h: int = h, q: jax.Array = q,
                     gate: jax.Array | float = gate,
                     head_seed: jax.Array = head_seed) -> Carry:  # fmt: skip
                out, largest, total = carry
                there = pl.ds(pl.multiple_of(j * block, block), block)
                scores = tiles.dot(k_ref[there, :], q, (1, 1)) * scale  # [keys, queries]
                if bias_ref is not None:
                    scores = scores + bias_ref[h, j - i + count - 1] * gate
                visible = _visible(sizes, ids_of_q, _column(k_ids[:, there]), i, j)
                new = jnp.maximum(
                    largest, jnp.where(visible, scores, tiles.NEGATIVE).max(0, keepdims=True)
                )
                weights = tiles.exponentials(scores, visible, new)
                shrink = jnp.exp(largest - new)  # [1, queries], like new and total
                total = total * shrink + weights.sum(0, keepdims=True)
                if sizes.rate:
                    weights *= tiles.keep_factors(head_seed, *_positions(i, j, block), sizes.rate)
                v = v_ref[there, :]
                return out * shrink + tiles.dot(v, weights.astype(v.dtype), (0, 0)), new, total

            carry = (
                jnp.zeros((every_q.shape[1], block), jnp.float32),
                jnp.full((1, block), tiles.NEGATIVE, jnp.float32),
                jnp.zeros((1, block), jnp.float32),
            )
            out, largest, total = jax.lax.fori_loop(first[r, i], end[r, i], body, carry)
            out = out / jnp.where(total > 0, total, 1.0)
            by_lane += _sublanes_of(out, h, size)
            log_ref[h : h + 1, :] = tiles.log_sum(largest, total)
        out_ref[...] = by_lane.T.astype(out_ref.dtype)

    rows, length = shape[:2]
    bounds = tiles.bounds(*ids, block, sizes.window)
    one = pl.BlockSpec((None, block, grouped.lanes), lambda g, r, i, *_: (r, i, g))
    whole = pl.BlockSpec((None, length, grouped.lanes), lambda g, r, i, *_: (r, 0, g))
    query_spec = pl.BlockSpec((None, None, group, block), lambda g, r, i, *_: (r, g, 0, i))
    padded, bias, gates = grouped.prepare(seeds, bias, gates)
    output, logs = _call(
        kernel,
        sizes,
        "attention",
        (grouped.count, rows, count),
        [bounds.first_key, bounds.end_key, padded],
        [
            one,
            whole,
            whole,
            pl.BlockSpec((None, 1, block), lambda g, r, i, *_: (r, 0, i)),
            pl.BlockSpec((None, 1, length), lambda g, r, i, *_: (r, 0, 0)),
            None if bias is None else _of_group(bias, group),
            None if gates is None else query_spec,
        ],
        [*map(grouped.flat, (query, key, value)), ids[0][:, None], ids[1][:, None], bias, gates],
        [one, query_spec],
        [
            jax.ShapeDtypeStruct((rows, length, grouped.width), query.dtype),
            jax.ShapeDtypeStruct((rows, grouped.count, group, length), jnp.float32),
        ],
        [],
    )
    return grouped.unflat(output), logs


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

    One kernel computes all gradients. For each group of heads, a core iterates over rows and blocks
    of keys, and accumulates the gradients of queries, bias and gates in its memory. The function is
    long because the kernel's loops over blocks and heads use its arguments.

    Args:
      sizes, scale, inputs, bias: the arguments of `forward`.
      output: the output of `forward`, [rows, length, heads, size].
      logs: the log-sums of `forward`, float32 [rows, groups, heads of a group, length].
      gradient: of the output, [rows, length, heads, size].
    """
    query, key, value, query_ids, key_ids, seeds, gates = inputs
    ids = query_ids, key_ids
    shape, block = query.shape, sizes.block
    rows, length = shape[:2]
    count = length // block
    grouped = _Grouped(shape)
    group, size = grouped.heads, shape[3]

    def kernel(*refs: OptionalRef) -> None:
        first, end, seed, q_ref, k_ref, v_ref, q_ids, k_ids, bias_ref, gate_ref, *others = refs
        o_ref, log_ref, do_ref, grad_q_ref, grad_k_ref, grad_v_ref, *others = others
        grad_bias_ref = others.pop(0) if bias is not None else None
        grad_gate_ref = others.pop(0) if gates is not None else None
        sum_q, inner_ref = others
        g, r, j = (pl.program_id(axis) for axis in range(3))

        @pl.when(j == 0)
        def _() -> None:
            sum_q[...] = jnp.zeros_like(sum_q)
            if grad_gate_ref is not None:
                grad_gate_ref[...] = jnp.zeros_like(grad_gate_ref)
            # Row h of inner_ref is, for head h and each token, the inner product of the output and
            # its gradient. Eight heads are computed at a time, since eight rows fill a register.
            products = o_ref[...].astype(jnp.float32) * do_ref[...].astype(jnp.float32)
            lane_head = jax.lax.broadcasted_iota(jnp.int32, (8, products.shape[1]), 1) // size
            head_number = jax.lax.broadcasted_iota(jnp.int32, (8, products.shape[1]), 0)
            for start in range(0, group, 8):
                belongs = (lane_head == head_number + start).astype(jnp.float32)  # [8, lanes]
                sums = tiles.dot(belongs, products, (1, 1))  # [8, length]
                upto = min(8, group - start)
                inner_ref[start : start + upto, :] = sums[:upto]

        if grad_bias_ref is not None:

            @pl.when((j == 0) & (r == 0))
            def _() -> None:
                grad_bias_ref[...] = jnp.zeros_like(grad_bias_ref)

        every_k, every_v = k_ref[...], v_ref[...]  # [block, lanes]
        ids_of_k = _column(k_ids[...])  # [block, 1]
        grad_k_sum = jnp.zeros(every_k.shape, jnp.float32)
        grad_v_sum = jnp.zeros(every_k.shape, jnp.float32)
        for h in range(group):
            k, v = _lanes_of(every_k, h, size), _lanes_of(every_v, h, size)
            head_seed = seed[r, g * group + h]

            def body(i: jax.Array, carry: tuple[jax.Array, jax.Array], h: int = h,
                     k: jax.Array = k, v: jax.Array = v,
                     head_seed: jax.Array = head_seed) -> tuple[jax.Array, jax.Array]:  # fmt: skip
                grad_k, grad_v = carry
                at = pl.multiple_of(i * block, block)
                there = pl.ds(at, block)
                q, do = q_ref[there, :], do_ref[there, :]
                q_h, do_h = _lanes_of(q, h, size), _lanes_of(do, h, size)
                scores = tiles.dot(k, q, (1, 1)) * scale  # [keys, queries]
                if bias_ref is not None:
                    gate, biased = _row(gate_ref, h, at, block), bias_ref[h, j - i + count - 1]
                    scores = scores + biased * gate
                visible = _visible(sizes, q_ids[:, there], ids_of_k, i, j)
                weights = tiles.exponentials(scores, visible, log_ref[h : h + 1, there])
                grad_weights = tiles.dot(v, do, (1, 1))  # [keys, queries], like weights
                dropped = weights
                if sizes.rate:
                    factors = tiles.keep_factors(head_seed, *_positions(i, j, block), sizes.rate)
                    dropped, grad_weights = weights * factors, grad_weights * factors
                inner = inner_ref[h : h + 1, there]  # [1, queries]
                grad_scores = tiles.compute_grad_scores(
                    weights, grad_weights, inner, visible, sizes.window
                )
                if grad_bias_ref is not None:
                    grad_bias_ref[h, j - i + count - 1] += grad_scores * gate
                if grad_gate_ref is not None:
                    grad_gate_ref[h : h + 1, there] += (grad_scores * biased).sum(0, keepdims=True)
                narrow = grad_scores.astype(q.dtype)
                sum_q[there, :] += tiles.dot(narrow, k, (0, 0))  # [queries, lanes]
                grad_v += tiles.dot(dropped.astype(do.dtype), do_h, (1, 0))  # [keys, lanes]
                return grad_k + tiles.dot(narrow, q_h, (1, 0)), grad_v

            grad_k_sum, grad_v_sum = jax.lax.fori_loop(
                first[r, j], end[r, j], body, (grad_k_sum, grad_v_sum)
            )
        grad_k_ref[...] = (grad_k_sum * scale).astype(grad_k_ref.dtype)
        grad_v_ref[...] = grad_v_sum.astype(grad_v_ref.dtype)

        @pl.when(j == count - 1)
        def _() -> None:
            grad_q_ref[...] = (sum_q[...] * scale).astype(grad_q_ref.dtype)

    bounds = tiles.bounds(*ids, block, sizes.window)
    one = pl.BlockSpec((None, block, grouped.lanes), lambda g, r, j, *_: (r, j, g))
    whole = pl.BlockSpec((None, length, grouped.lanes), lambda g, r, j, *_: (r, 0, g))
    query_spec = pl.BlockSpec((None, None, group, length), lambda g, r, j, *_: (r, g, 0, 0))
    padded, bias_in, gates_in = grouped.prepare(seeds, bias, gates)
    flat = jax.ShapeDtypeStruct((rows, length, grouped.width), query.dtype)
    out_specs: list[pl.BlockSpec] = [whole, one, one]
    outputs: list[Shaped] = [flat, flat, flat]
    if bias_in is not None:
        out_specs, outputs = [*out_specs, _of_group(bias_in, group)], [*outputs, bias_in]
    if gates_in is not None:
        out_specs, outputs = [*out_specs, query_spec], [*outputs, gates_in]
    grad_q, grad_k, grad_v, *others = _call(
        kernel,
        sizes,
        "attention_backward",
        (grouped.count, rows, count),
        [bounds.first_query, bounds.end_query, padded],
        [
            whole,
            one,
            one,
            pl.BlockSpec((None, 1, length), lambda g, r, j, *_: (r, 0, 0)),
            pl.BlockSpec((None, 1, block), lambda g, r, j, *_: (r, 0, j)),
            None if bias_in is None else _of_group(bias_in, group),
            None if gates_in is None else query_spec,
            whole,
            query_spec,
            whole,
        ],
        [*map(grouped.flat, (query, key, value)), ids[0][:, None], ids[1][:, None]]
        + [bias_in, gates_in, grouped.flat(output), logs, grouped.flat(gradient)],
        out_specs,
        outputs,
        [
            pltpu.VMEM((length, grouped.lanes), jnp.float32),
            pltpu.VMEM((group + -group % 8, length), jnp.float32),
        ],
    )
    grad_bias = None if bias is None else others.pop(0)[: shape[2]].swapaxes(2, 3)
    grad_gates = None if gates is None else others.pop(0).reshape(rows, -1, length)[:, : shape[2]]
    return (*map(grouped.unflat, (grad_q, grad_k, grad_v)), grad_bias, grad_gates)


class _Grouped:
    """Reshapes arrays of all heads into groups of heads that fill the lanes.

    The last group is padded with heads of zeros.

    Attributes:
      heads: number of heads in a group.
      lanes: number of lanes of a group.
      count: number of groups.
      width: number of lanes of all groups together.
    """

    def __init__(self, shape: tuple[int, ...]):
        _, _, self._all, self._size = shape
        self.heads = max(1, _LANES // self._size)
        self.lanes = self.heads * self._size
        self.count = -(-self._all // self.heads)
        self.width = self.count * self.lanes
        self._more = self.count * self.heads - self._all

    def flat(self, x: jax.Array) -> jax.Array:
        """Reshapes [rows, length, heads, size] -> [rows, length, width]."""
        x = x.reshape(*x.shape[:2], -1)
        return jnp.pad(x, ((0, 0), (0, 0), (0, self.width - x.shape[2]))) if self._more else x

    def unflat(self, x: jax.Array) -> jax.Array:
        """Reshapes [rows, length, width] -> [rows, length, heads, size]."""
        x = x[..., : self._all * self._size] if self._more else x
        return x.reshape(*x.shape[:2], self._all, self._size)

    def prepare(
        self, seeds: jax.Array, bias: jax.Array | None, gates: jax.Array | None
    ) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
        """Pads seeds, bias and gates to whole groups, in the layout of the kernels.

        Returns:
          Seeds, int32 [rows, padded heads]; the bias with tiles [keys, queries]; and the gates,
          float32 [rows, groups, heads of a group, length]. Bias and gates may be None.
        """
        more = (0, self._more)
        if bias is not None:
            bias = jnp.pad(bias.swapaxes(2, 3), (more, (0, 0), (0, 0), (0, 0)))
        if gates is not None:
            gates = jnp.pad(gates, ((0, 0), more, (0, 0)))
            gates = gates.reshape(len(gates), self.count, self.heads, -1)
        return jnp.pad(seeds, ((0, 0), more)), bias, gates


def _of_group(bias: jax.Array, heads: int) -> pl.BlockSpec:
    """Returns the spec of the bias of a group of heads."""
    return pl.BlockSpec((heads, *bias.shape[1:]), lambda g, r, i, *_: (g, 0, 0, 0))


def _lanes_of(x: jax.Array, head: int, size: int) -> jax.Array:
    """Sets the lanes of other heads in x [n, lanes] to 0."""
    if x.shape[1] == size:
        return x
    lane = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return jnp.where((lane >= head * size) & (lane < (head + 1) * size), x, jnp.zeros_like(x))


def _sublanes_of(x: jax.Array, head: int, size: int) -> jax.Array:
    """Sets the rows of other heads in x [lanes, n] to 0."""
    if x.shape[0] == size:
        return x
    lane = jax.lax.broadcasted_iota(jnp.int32, x.shape, 0)
    return jnp.where((lane >= head * size) & (lane < (head + 1) * size), x, 0.0)


def _row(ref: OptionalRef, head: int, start: jax.Array | int, block: int) -> jax.Array | float:
    """Returns the gates of a head for a block of queries, as a row [1, block]; 1 without gates."""
    return 1.0 if ref is None else ref[head : head + 1, pl.ds(start, block)]


def _column(row: jax.Array) -> jax.Array:
    """Transposes [1, n] -> [n, 1], by way of eight equal rows, which fill a register."""
    return jnp.broadcast_to(row, (8, row.shape[1])).T[:, :1]


def _visible(
    sizes: Sizes, ids_of_q: jax.Array, ids_of_k: jax.Array, i: jax.Array, j: jax.Array
) -> jax.Array:
    """Returns which keys of block j the queries of block i see: bool [keys, queries].

    Args:
      ids_of_q: segment ids of the queries, int32 [1, block].
      ids_of_k: segment ids of the keys, int32 [block, 1].
    """
    visible = ids_of_k == ids_of_q
    if sizes.window is None:
        return visible
    return visible & interface.is_within(*_positions(i, j, sizes.block), sizes.window)


def _positions(i: jax.Array, j: jax.Array, block: int) -> tuple[jax.Array, jax.Array]:
    """Returns the indices in the row of the queries of block i, and of the keys of block j.

    Returns:
      int32 [1, block] and [block, 1].
    """
    queries = i * block + jax.lax.broadcasted_iota(jnp.int32, (1, block), 1)
    keys = j * block + jax.lax.broadcasted_iota(jnp.int32, (block, 1), 0)
    return queries, keys


def _call(
    kernel: Callable[..., None],
    sizes: Sizes,
    name: str,
    grid: tuple[int, ...],
    scalars: Sequence[jax.Array],
    specs: Sequence[pl.BlockSpec | None],
    inputs: Sequence[jax.Array | None],
    out_specs: Sequence[pl.BlockSpec],
    outputs: Sequence[Shaped],
    scratch: Sequence["pl.MemoryRef"],
) -> list[jax.Array]:
    """Runs a kernel.

    Args:
      name: of the kernel in compiled programs; a window extends it (`Sizes.kernel_name`).
      scalars: arrays that are in scalar memory before the kernel starts.
      specs, out_specs: blocks of inputs and outputs.
      outputs: arrays with the shapes and dtypes of the outputs.
      scratch: arrays that persist in the core's memory during the kernel.
    """
    arrays = [*(x for x in inputs if x is not None), *outputs]
    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(scalars),
            grid=grid,
            in_specs=specs,
            out_specs=out_specs,
            scratch_shapes=scratch,
        ),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=_MEMORY),
        interpret=sizes.interpret,
        cost_estimate=sizes.cost(PRODUCTS[name], arrays, arrays[0]),
        name=sizes.kernel_name(name),
    )(*scalars, *inputs)
