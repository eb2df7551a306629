"""Self-attention with a pattern of two id vectors per row: query i sees key j if ids are equal."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models.block import Context
from xlj.models.dense import Dense
from xlj.models.dense_attention import dense_attention
from xlj.models.fused_attention import attend as fused
from xlj.models.modules import Params, run
from xlj.models.position_bias import Gates, PositionBias, bias_tiles
from xlj.models.rotary import rotate
from xlj.sharding import devices


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al., 2017), without the residual connection.

    With fewer heads for keys and values than for queries, each is shared by neighbouring query
    heads (grouped-query attention, Ainslie et al., 2023). In a local layer a query sees keys at
    most `model.local_attention // 2` places away.
    """

    model: Model
    is_local: bool = False

    @nn.compact
    def __call__(self, x: jax.Array, context: Context) -> jax.Array:
        """Maps x [rows, length, hidden] -> [rows, length, hidden] of the model's dtype.

        A query that sees no key gets zeros (before the output layer), never NaN. The position bias
        is added to the scores. If the model has gates, the bias is first multiplied by the query's
        gate.
        """
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        rows, length, hidden = x.shape
        size, shared = hidden // model.heads, model.heads // model.groups
        linear = partial(Dense, dtype=dtype, init_std=model.init_std, result=dtype)

        def heads_of(name: str, count: int) -> jax.Array:
            has_bias = "attention" in model.biases
            projected = linear(count * size, has_bias=has_bias, name=name)(x)
            return projected.reshape(rows, length, count, size)

        query = heads_of("query", model.heads)
        key, value = heads_of("key", model.groups), heads_of("value", model.groups)
        gates = None
        if model.position_bias == "gated":
            gates = Gates(model.init_std, name="gates")(query)
        if context.rotations:
            rotations = context.rotations[self.is_local]
            query, key = rotate(query, rotations), rotate(key, rotations)
        if shared > 1:
            key, value = (jnp.repeat(heads, shared, axis=2) for heads in (key, value))
        attend = fused.attend if is_fused(model) else dense_attention
        output = attend(
            query,
            key,
            value,
            context.query_segment_ids,
            context.key_segment_ids,
            context.bias,
            gates,
            context.seeds(site=1),
            model.attention_dropout,
            window=model.local_attention // 2 if self.is_local else None,
        ).reshape(rows, length, hidden)
        return linear(hidden, has_bias="output" in model.biases, name="output")(output)


def is_fused(model: Model) -> bool:
    """Returns whether attention is a fused kernel; with `model.attention=auto`, not on CPUs."""
    if model.attention == "auto":
        return devices.platform() in fused.KERNELS
    return model.attention == "fused"


def shared_bias(params: Params, model: Model, length: int) -> jax.Array:
    """Returns the relative position bias of all layers, in the form that attention needs.

    Returns:
      float32 [heads, length, length] for dense attention; tiles as described in
      `fused_attention.attend` for fused attention.
    """
    table = params["table"]
    check("shared_bias", table=(f"float32 [{model.position_buckets}, {model.heads}]", table))
    if is_fused(model):
        size = model.hidden // model.heads
        length, block = fused.padded_length(length, size, model.dtype)
    line = run(PositionBias(model), params, length)
    return bias_tiles(line, block) if is_fused(model) else bias_tiles(line, length)[:, 0]
