"""Attention by a kernel as a differentiable function on any mesh: what `triton` and `tpu` share."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

from xlj.models import dropout
from xlj.models.attention import interface, tiles
from xlj.models.attention.interface import Costs, Operands, Request
from xlj.models.attention.tiles import Inputs, Sizes
from xlj.models.dense import PRODUCT
from xlj.sharding import devices
from xlj.sharding.devices import REPLICATED, ROWS


class Kernels(Protocol):
    """The functions that the kernels of each platform have."""

    PLATFORM: str
    """The platform that compiles the kernels. On CPUs, Pallas interprets them, which is slow."""

    @property
    def PRODUCTS(self) -> Mapping[str, int]:
        """The number of matrix products for each tile, by the name of the kernel."""

    def why_not(self, request: Request) -> str | None:
        """Returns why the kernels cannot compute a request (`Implementation.why_not`)."""

    def why_slower(self, request: Request) -> str | None:
        """Returns why `auto` prefers another implementation (`Implementation.why_slower`)."""

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


@dataclasses.dataclass(frozen=True)
class Fused(interface.Implementation):
    """The implementation of attention by the kernels of a module."""

    kernels: Kernels

    def why_not(self, request: Request) -> str | None:
        """Returns why the kernels cannot compute a request; None if they can."""
        return self.kernels.why_not(request)

    def why_slower(self, request: Request) -> str | None:
        """Returns why `auto` prefers another implementation; None if it prefers this one."""
        if request.platform != self.kernels.PLATFORM:
            return f"kernels for {self.kernels.PLATFORM.upper()}s"  # Pallas would interpret them
        return self.kernels.why_slower(request)

    def bias_block(self, request: Request) -> int:
        """Returns the number of queries in a tile of the kernels."""
        return self.kernels.block(request.size, request.dtype)

    def costs(self, request: Request) -> Costs:
        """Returns operations and bytes, as if kernels skipped no tile within the window."""
        block = self.bias_block(request)
        length = interface.count_blocks(request.length, block) * block
        near = tiles.keys_near(length, block, request.window)
        padded = request._replace(length=length, size=self.kernels.head_size(request.size))
        products = dict(self.kernels.PRODUCTS)
        if not request.has_bias:
            products.pop("attention_of_bias", None)
        forward = products.pop("attention")
        return interface.costs_of(padded, (forward, sum(products.values())), near)

    def attend(self, operands: Operands) -> jax.Array:
        """Computes attention without a matrix of scores in memory (`Implementation.attend`).

        With a window, blocks of keys farther away are not visited. Each device computes its own
        rows. The kernels sum the gradient of the bias over rows.
        """
        query, mask, rate = operands.query, operands.mask, operands.rate
        kernels, block = self.kernels, self.kernels.block(query.shape[-1], query.dtype)
        operands.check(block)
        rows, length, heads, size = query.shape
        fill, wider = -length % block, kernels.head_size(size) - size
        ids = mask.query_segment_ids, mask.key_segment_ids
        seeds = operands.seeds
        if seeds is None or not dropout.threshold(rate):
            seeds, rate = jnp.zeros(rows, jnp.int32), 0.0
        seeds = dropout.fold_in(seeds[:, None], jnp.arange(heads, dtype=jnp.int32))
        heads_of = query, operands.key, operands.value
        inputs = _pad(Inputs(*heads_of, *ids, seeds, operands.gates), fill, wider)
        sizes = Sizes(block, rate, devices.platform() != kernels.PLATFORM, mask.narrowing)
        output = _attend(sizes, kernels, size**-0.5, inputs, operands.bias)
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
    sizes: Sizes, kernels: Kernels, scale: float, inputs: Inputs, bias: jax.Array | None
) -> jax.Array:
    return _forward(sizes, kernels, scale, inputs, bias)[0]


Saved = tuple[Inputs, jax.Array | None, jax.Array, jax.Array]
"""Saved for the backward pass: the inputs, the bias, the output, and the log-sums of `forward`."""
_OF_INPUTS = tuple(ROWS for _ in Inputs._fields)


def _forward(
    sizes: Sizes, kernels: Kernels, scale: float, inputs: Inputs, bias: jax.Array | None
) -> tuple[jax.Array, Saved]:
    def compute_on_device(
        bias: jax.Array | None, *arrays: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return kernels.forward(sizes, scale, Inputs(*arrays), bias)

    per_device = devices.per_device(compute_on_device, (REPLICATED, *_OF_INPUTS), (ROWS, ROWS))
    output, logs = per_device(bias, *inputs)
    output, logs = (checkpoint_name(x, PRODUCT) for x in (output, logs))
    return output, (inputs, bias, output, logs)


def _backward(
    sizes: Sizes, kernels: Kernels, scale: float, saved: Saved, gradient: jax.Array
) -> tuple[Inputs, jax.Array | None]:
    def compute_on_device(
        bias: jax.Array | None,
        output: jax.Array,
        logs: jax.Array,
        gradient: jax.Array,
        *arrays: jax.Array,
    ) -> tuple[jax.Array | None, ...]:
        *gradients, grad_bias, grad_gates = kernels.backward(
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
