"""Residual sum, dropout and LayerNorm in one kernel, forward and backward, for GPUs.

On GPUs, XLA compiles the three operations to several kernels. The kernels exchange float32 arrays,
which cause a quarter of a step's memory traffic. On TPUs, XLA fuses the operations with
neighbouring products, so this kernel is not needed.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Ref
from jax.experimental import pallas as pl
from jax.typing import DTypeLike

from xlj.contracts.arrays import check
from xlj.models import dropout, pallas
from xlj.models.lowering import with_gradient
from xlj.models.pallas import triton
from xlj.sharding import devices
from xlj.sharding.devices import REPLICATED, ROWS

TOKENS = 4
"""Number of tokens that a kernel processes at a time."""
_ITERATIONS = 8
"""Number of iterations of a program in the backward pass. Each iteration processes `TOKENS` tokens.
The program sums the gradients of scale and bias over all its tokens."""
MULTIPLE = TOKENS * _ITERATIONS
"""The length of a row must be a multiple of this number."""

Saved = tuple[jax.Array, ...]
"""Saved for the backward pass, in this order: x + dropout(update); the mean of each token; the
reciprocal standard deviation of each token; scale; seeds; a zero of the dtype of the update."""
Index = slice | tuple[slice, ...]


class Options(NamedTuple):
    """Static arguments of a kernel."""

    epsilon: float
    rate: float
    """Rate of dropout of the update; 0 for no dropout."""
    narrow: DTypeLike
    """The dtype of the second output."""
    interpret: bool
    """Whether Pallas interprets the kernel, which is slow but runs on any platform."""


def add_norm(
    options: Options,
    x: jax.Array,
    update: jax.Array,
    scale: jax.Array,
    bias: jax.Array,
    seeds: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Computes LayerNorm(x + dropout(update)), with the factor `scale` and the summand `bias`.

    Args:
      x: float32 [rows, length, hidden]; the length is a multiple of `MULTIPLE`.
      update: float [rows, length, hidden].
      scale, bias: float32 [hidden].
      seeds: of dropout, int32 [rows] (`dropout.row_seeds`).

    Returns:
      The result twice, [rows, length, hidden]: in float32, for the next residual sum, and in
      `options.narrow`, for products.
    """
    check(
        "add_norm",
        x=("float32 [rows, length, hidden]", x),
        update=("float [rows, length, hidden]", update),
        scale=("float32 [hidden]", scale),
        bias=("float32 [hidden]", bias),
        seeds=("int32 [rows]", seeds),
    )
    return _differentiable(options, x, update, scale, bias, seeds)


def _forward(options: Options, *arrays: jax.Array) -> tuple[tuple[jax.Array, jax.Array], Saved]:
    inputs = (ROWS, ROWS, REPLICATED, REPLICATED, ROWS)
    call = devices.per_device(partial(_add_norm, options), inputs, ROWS)
    wide, narrow, *saved = call(*arrays)
    _, update, scale, _, seeds = arrays
    kind = jnp.zeros((), update.dtype)
    return (wide, narrow), (*saved, scale, seeds, kind)


def _backward(
    options: Options, saved: Saved, gradients: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array | None, ...]:
    *arrays, kind = saved

    def compute_on_device(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        grad_x, grad_update, grad_scale, grad_bias = _of_add_norm(options, kind.dtype, *arrays)
        return grad_x, grad_update, devices.reduce_sum(grad_scale), devices.reduce_sum(grad_bias)

    inputs = (ROWS, ROWS, ROWS, REPLICATED, ROWS, ROWS, ROWS)
    call = devices.per_device(compute_on_device, inputs, (ROWS, ROWS, REPLICATED, REPLICATED))
    return *call(*arrays, *gradients), None


_differentiable = with_gradient(_forward, _backward, static=(0,))


def _add_norm(
    options: Options,
    x: jax.Array,
    update: jax.Array,
    scale: jax.Array,
    bias: jax.Array,
    seeds: jax.Array,
) -> tuple[jax.Array, ...]:
    """Runs the kernel of the forward pass on the arguments of `add_norm`.

    Returns:
      The result in float32 and in `options.narrow`, and the sum x + dropout(update) in float32, all
      [rows, length, hidden]. The mean and the reciprocal standard deviation of each token, float32
      [rows, length].
    """
    rows, length, hidden = x.shape
    width = pl.next_power_of_2(hidden)

    def kernel(x_ref: Ref, update_ref: Ref, scale_ref: Ref, bias_ref: Ref, seeds_ref: Ref,
               wide_ref: Ref, narrow_ref: Ref, sum_ref: Ref, mean_ref: Ref,
               factor_ref: Ref) -> None:  # fmt: skip
        first = pl.program_id(1) * TOKENS
        inside = jnp.arange(width) < hidden
        mask = jnp.broadcast_to(inside[None, :], (TOKENS, width))

        def load(ref: Ref, at: Index, mask: jax.Array) -> jax.Array:
            return triton.load(ref.at[at], mask=mask, other=0.0).astype(jnp.float32)

        every = (slice(None), slice(None))
        total = load(x_ref, every, mask)  # [TOKENS, width]
        more = load(update_ref, every, mask)
        if options.rate:
            more = more * _keep_factors(seeds_ref[...], first, width, options.rate)
        total = total + more
        mean = total.sum(1) / hidden  # [TOKENS]
        centred = jnp.where(mask, total - mean[:, None], 0.0)
        factor = jax.lax.rsqrt((centred * centred).sum(1) / hidden + options.epsilon)
        weight = load(scale_ref, slice(None), inside)[None, :]  # [1, width]
        shift = load(bias_ref, slice(None), inside)[None, :]
        y = centred * factor[:, None] * weight + shift
        triton.store(sum_ref.at[every], total, mask=mask)
        triton.store(wide_ref.at[every], y, mask=mask)
        triton.store(narrow_ref.at[every], y.astype(narrow_ref.dtype), mask=mask)
        mean_ref[...] = mean
        factor_ref[...] = factor

    block = pl.BlockSpec((None, TOKENS, width), lambda r, i: (r, i, 0))
    vector = pl.BlockSpec((width,), lambda r, i: (0,))
    token_spec = pl.BlockSpec((None, TOKENS), lambda r, i: (r, i))
    row_spec = pl.BlockSpec((None,), lambda r, i: (r,))
    per_token = jax.ShapeDtypeStruct((rows, length), jnp.float32)
    wide = jax.ShapeDtypeStruct(x.shape, jnp.float32)
    narrow = jax.ShapeDtypeStruct(x.shape, options.narrow)
    inputs, outputs = [x, update, scale, bias, seeds], [wide, narrow, wide, per_token, per_token]
    return pl.pallas_call(
        kernel,
        grid=(rows, length // TOKENS),
        in_specs=[block, block, vector, vector, row_spec],
        out_specs=[block, block, block, token_spec, token_spec],
        out_shape=outputs,
        cost_estimate=pallas.cost(0, [*inputs, *outputs]),
        compiler_params=triton.CompilerParams(num_warps=8, num_stages=1),
        interpret=options.interpret,
        name="add_norm",
    )(*inputs)


def _of_add_norm(
    options: Options,
    kind: DTypeLike,
    total: jax.Array,
    mean: jax.Array,
    factor: jax.Array,
    scale: jax.Array,
    seeds: jax.Array,
    grad_wide: jax.Array,
    grad_narrow: jax.Array,
) -> tuple[jax.Array, ...]:
    """Computes the gradients of x, update, scale and bias.

    The function is long because the kernel's loop uses the kernel's arguments, and the block
    specifications must match the kernel.

    Args:
      kind: dtype of the update.
      total: x + dropout(update), float32 [rows, length, hidden].
      mean, factor: mean and reciprocal standard deviation, float32 [rows, length].
      scale: float32 [hidden].
      seeds: int32 [rows].
      grad_wide, grad_narrow: gradients of the two outputs, [rows, length, hidden].

    Returns:
      Gradients of x, float32 [rows, length, hidden]; of the update, in its dtype; and of scale and
      bias, float32 [hidden].
    """
    rows, length, hidden = total.shape
    width, blocks = pl.next_power_of_2(hidden), length // MULTIPLE

    def kernel(total_ref: Ref, mean_ref: Ref, factor_ref: Ref, scale_ref: Ref, seeds_ref: Ref,
               wide_ref: Ref, narrow_ref: Ref, grad_x_ref: Ref, grad_update_ref: Ref,
               grad_scale_ref: Ref, grad_bias_ref: Ref) -> None:  # fmt: skip
        first = pl.program_id(1) * MULTIPLE
        inside = jnp.arange(width) < hidden
        mask = jnp.broadcast_to(inside[None, :], (TOKENS, width))
        weight = triton.load(scale_ref.at[:], mask=inside, other=0.0)[None, :]

        def add_tokens(
            number: jax.Array, sums: tuple[jax.Array, jax.Array]
        ) -> tuple[jax.Array, jax.Array]:
            grad_scale, grad_bias = sums
            here = pl.ds(number * TOKENS, TOKENS)

            def load(ref: Ref) -> jax.Array:
                loaded = triton.load(ref.at[here, :], mask=mask, other=0.0)
                return loaded.astype(jnp.float32)

            shrink = factor_ref[here][:, None]  # [TOKENS, 1]
            y = jnp.where(mask, (load(total_ref) - mean_ref[here][:, None]) * shrink, 0.0)
            gradient = load(wide_ref) + load(narrow_ref)  # [TOKENS, width], like y
            grad_y = gradient * weight
            along = (grad_y * y).sum(1)[:, None] / hidden  # [TOKENS, 1]
            grad_x = (grad_y - grad_y.sum(1)[:, None] / hidden - y * along) * shrink
            grad_update = grad_x
            if options.rate:
                start = first + number * TOKENS
                grad_update = grad_x * _keep_factors(seeds_ref[...], start, width, options.rate)
            triton.store(grad_x_ref.at[here, :], grad_x, mask=mask)
            triton.store(grad_update_ref.at[here, :], grad_update.astype(kind), mask=mask)
            return grad_scale + (gradient * y).sum(0), grad_bias + gradient.sum(0)

        zeros = jnp.zeros((width,), jnp.float32)
        grad_scale, grad_bias = jax.lax.fori_loop(0, _ITERATIONS, add_tokens, (zeros, zeros))
        triton.store(grad_scale_ref.at[:], grad_scale, mask=inside)
        triton.store(grad_bias_ref.at[:], grad_bias, mask=inside)

    block = pl.BlockSpec((None, MULTIPLE, width), lambda r, i: (r, i, 0))
    vector = pl.BlockSpec((width,), lambda r, i: (0,))
    token_spec = pl.BlockSpec((None, MULTIPLE), lambda r, i: (r, i))
    row_spec = pl.BlockSpec((None,), lambda r, i: (r,))
    part_spec = pl.BlockSpec((None, None, width), lambda r, i: (r, i, 0))
    partial_sums = jax.ShapeDtypeStruct((rows, blocks, hidden), jnp.float32)
    of_tokens = [jax.ShapeDtypeStruct(total.shape, dtype) for dtype in (jnp.float32, kind)]
    inputs = [total, mean, factor, scale, seeds, grad_wide, grad_narrow]
    outputs = [*of_tokens, partial_sums, partial_sums]
    grad_x, grad_update, grad_scale, grad_bias = pl.pallas_call(
        kernel,
        grid=(rows, blocks),
        in_specs=[block, token_spec, token_spec, vector, row_spec, block, block],
        out_specs=[block, block, part_spec, part_spec],
        out_shape=outputs,
        cost_estimate=pallas.cost(0, [*inputs, *outputs]),
        compiler_params=triton.CompilerParams(num_warps=8, num_stages=1),
        interpret=options.interpret,
        name="add_norm_backward",
    )(*inputs)
    return grad_x, grad_update, grad_scale.sum((0, 1)), grad_bias.sum((0, 1))


def _keep_factors(seed: jax.Array, first: jax.Array, width: int, rate: float) -> jax.Array:
    """Returns the factors of dropout for `TOKENS` tokens, float32 [TOKENS, width].

    A factor is 0 or `dropout.scale(rate)`. The mask is the one of `dropout.keep_mask` for arrays
    [length, hidden].

    Args:
      seed: of the row, int32.
      first: index in the row of the first token.
      width: number of columns, at least `hidden`.
    """
    tokens = first + jnp.arange(TOKENS, dtype=jnp.int32)
    hashes = dropout.fold_in(seed, tokens)[:, None]
    hashes = dropout.fold_in(hashes, jnp.arange(width, dtype=jnp.int32)[None, :])
    return jnp.where(dropout.is_kept(hashes, rate), jnp.float32(dropout.scale(rate)), 0.0)
