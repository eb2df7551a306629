"""Fused attention as a differentiable function on any mesh; the only entry point to the kernels."""

from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

from xlj.contracts.arrays import check
from xlj.models import dropout
from xlj.models.dense import PRODUCT
from xlj.models.dense_attention import check_inputs
from xlj.models.fused_attention import gpu, tiles, tpu
from xlj.models.fused_attention.tiles import Inputs, Sizes
from xlj.sharding import devices
from xlj.sharding.rules import REPLICATED, ROWS


class Kernels(Protocol):
    """The functions that the module of each platform has."""

    def head_size(self, size: int) -> int:
        """Returns the size to which heads of `size` dimensions are padded."""

    def block(self, size: int, dtype: DTypeLike) -> int:
        """Returns the number of queries, and of keys, in a tile.

        Args:
          size: number of dimensions of a head.
          dtype: of queries and keys.
        """

    def forward(
        self, sizes: Sizes, scale: float, inputs: Inputs, bias: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Computes the output, and the log-sums that `backward` needs.

        Args:
          scale: factor of the scores.
          bias: float32 [heads, 2 length / block - 1, block, block]: a tile for each distance of
            blocks; None for no bias.

        Returns:
          The output, [rows, length, heads, size] in the dtype of the query. For each query, the log
          of the sum of exponentials of its scores, float32, in a layout of the platform's choice.
        """

    def backward(
        self,
        sizes: Sizes,
        scale: float,
        inputs: Inputs,
        bias: jax.Array | None,
        output: jax.Array,
        logs: jax.Array,
        gradient: jax.Array,
    ) -> tuple[jax.Array | None, ...]:
        """Computes the gradients of query, key, value, bias and gates; None without bias or gates.

        Args:
          sizes, scale, inputs, bias: the arguments of `forward`.
          output, logs: the results of `forward`.
          gradient: of the output, [rows, length, heads, size].
        """


KERNELS: dict[str, Kernels] = {"gpu": gpu, "tpu": tpu}
"""The module with the kernels of each platform."""


PRODUCTS = {
    "attention": 2,
    "attention_backward": 5,
    "attention_of_query": 3,
    "attention_of_key": 4,
    "attention_of_bias": 2,
}
"""For each kernel, by its name in compiled programs: the number of matrix products for each row and
head. Each product has length * length * size multiply-adds."""


def kernels_for(platform: str) -> Kernels:
    """Returns the module with the kernels of a platform.

    For CPUs these are the kernels of GPUs, which Pallas then interprets.
    """
    return KERNELS.get(platform, gpu)


def padded_length(length: int, size: int, dtype: DTypeLike) -> tuple[int, int]:
    """Returns the length to which rows are padded, and the kernel's block, which divides it.

    Args:
      length: of a row.
      size: number of dimensions of a head.
      dtype: of queries and keys.
    """
    block = kernels_for(devices.platform()).block(size, dtype)
    return length + -length % block, block


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_segment_ids: jax.Array,
    key_segment_ids: jax.Array,
    bias: jax.Array | None = None,
    gates: jax.Array | None = None,
    seeds: jax.Array | None = None,
    rate: float = 0.0,
    platform: str | None = None,
    *,
    window: int | None = None,
) -> jax.Array:
    """Computes attention in which a query sees the keys with the same segment id.

    No matrix of scores is written to memory. The output of a query that sees no key is zero.

    Args:
      query, key, value: float [rows, length, heads, size], all of one dtype, which is also the
        dtype of the products' factors.
      query_segment_ids, key_segment_ids: int32 [rows, length].
      bias: the tiles of `position_bias.bias_tiles` for rows of `padded_length`, float32 [heads,
        2 blocks - 1, block, block]; None for no bias. The kernels sum its gradient over rows.
      gates: float32 [rows, heads, length], the factor of the bias for each query; None for 1.
      seeds: seeds of dropout, int32 [rows] (`dropout.row_seeds`); None for no dropout.
      rate: of dropout.
      platform: "gpu" or "tpu", to choose the kernels; None for the platform of the traced program,
        or "gpu" on CPUs. Kernels of another platform are interpreted, which is slow.
      window: the largest distance in the row at which a query sees a key, on both sides and
        inclusive; None for no window. Blocks of keys farther away are not visited.

    Returns:
      [rows, length, heads, size], of the dtype of `query`.
    """
    check("attend", query=("float [rows, length, heads, size]", query))
    traced_platform = devices.platform()
    platform = platform or (traced_platform if traced_platform in KERNELS else "gpu")
    kernels, (rows, length, heads, size) = kernels_for(platform), query.shape
    block = kernels.block(size, query.dtype)
    fill, wider = -length % block, kernels.head_size(size) - size
    bias_specification = f"float32 [heads, {2 * -(-length // block) - 1}, {block}, {block}]"
    ids = query_segment_ids, key_segment_ids
    check_inputs(
        "attend",
        query,
        key,
        value,
        *ids,
        bias=(bias_specification, bias),
        gates=gates,
        seeds=seeds,
        window=window,
    )

    if seeds is None or not dropout.threshold(rate):
        seeds, rate = jnp.zeros(rows, jnp.int32), 0.0
    seeds = dropout.fold_in(seeds[:, None], jnp.arange(heads, dtype=jnp.int32))
    inputs = _pad(Inputs(query, key, value, *ids, seeds, gates), fill, wider)
    sizes = Sizes(block, rate, traced_platform != platform, tiles.narrowing(window, length))
    output = _attend(sizes, platform, size**-0.5, inputs, bias)
    return output[:, :length, :, :size] if fill or wider else output


def _pad(inputs: Inputs, fill: int, wider: int) -> Inputs:
    """Pads rows and heads to the sizes that the kernels need.

    Args:
      fill: number of tokens to append to each row. They see no token, and no token sees them.
      wider: number of zeros to append to each head.
    """
    if not fill and not wider:
        return inputs

    def padded(x: jax.Array, *last: int, value: int = 0) -> jax.Array:
        others = [(0, 0)] * (x.ndim - len(last))
        return jnp.pad(x, [*others, *((0, more) for more in last)], constant_values=value)

    gates = inputs.gates
    return Inputs(
        padded(inputs.query, fill, 0, wider),
        padded(inputs.key, fill, 0, wider),
        padded(inputs.value, fill, 0, wider),
        padded(inputs.query_segment_ids, fill, value=tiles.NO_QUERY),
        padded(inputs.key_segment_ids, fill, value=tiles.NO_KEY),
        inputs.seeds,
        None if gates is None else padded(gates, fill),
    )


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _attend(
    sizes: Sizes, platform: str, scale: float, inputs: Inputs, bias: jax.Array | None
) -> jax.Array:
    return _forward(sizes, platform, scale, inputs, bias)[0]


Saved = tuple[Inputs, jax.Array | None, jax.Array, jax.Array]
"""Saved for the backward pass: the inputs, the bias, the output, and the log-sums of `forward`."""
_OF_INPUTS = tuple(ROWS for _ in Inputs._fields)


def _forward(
    sizes: Sizes, platform: str, scale: float, inputs: Inputs, bias: jax.Array | None
) -> tuple[jax.Array, Saved]:
    def compute_on_device(
        bias: jax.Array | None, *arrays: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return kernels_for(platform).forward(sizes, scale, Inputs(*arrays), bias)

    per_device = devices.per_device(compute_on_device, (REPLICATED, *_OF_INPUTS), (ROWS, ROWS))
    output, logs = per_device(bias, *inputs)
    output, logs = (checkpoint_name(x, PRODUCT) for x in (output, logs))
    return output, (inputs, bias, output, logs)


def _backward(
    sizes: Sizes, platform: str, scale: float, saved: Saved, gradient: jax.Array
) -> tuple[Inputs, jax.Array | None]:
    def compute_on_device(
        bias: jax.Array | None,
        output: jax.Array,
        logs: jax.Array,
        gradient: jax.Array,
        *arrays: jax.Array,
    ) -> tuple[jax.Array | None, ...]:
        *gradients, grad_bias, grad_gates = kernels_for(platform).backward(
            sizes, scale, Inputs(*arrays), bias, output, logs, gradient
        )
        return *gradients, None if grad_bias is None else devices.reduce_sum(grad_bias), grad_gates

    inputs, bias, output, logs = saved
    per_device = devices.per_device(
        compute_on_device,
        (REPLICATED, ROWS, ROWS, ROWS, *_OF_INPUTS),
        (ROWS, ROWS, ROWS, REPLICATED, ROWS),
    )
    grad_q, grad_k, grad_v, grad_bias, grad_gates = per_device(
        bias, output, logs, gradient, *inputs
    )
    return Inputs._make((grad_q, grad_k, grad_v, None, None, None, grad_gates)), grad_bias


_attend.defvjp(_forward, _backward)
