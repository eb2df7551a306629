"""Self-attention whose pattern is two integer vectors a row: i sees j where their ids agree."""

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
from xlj.sharding import devices


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al., 2017), without the residual connection."""

    model: Model

    @nn.compact
    def __call__(self, x: jax.Array, context: Context) -> jax.Array:
        """x [rows, length, hidden] -> [rows, length, hidden] of the model's dtype.

        A query that sees no key gets zeros (before the output layer), never NaN. The position bias
        is added to the scores, multiplied by a gate of the query if the model has gates.
        """
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        rows, length, hidden = x.shape

        def heads_of(name: str) -> jax.Array:
            projected = Dense(hidden, dtype, model.init_std, dtype, name=name)(x)
            return projected.reshape(rows, length, model.heads, -1)

        query, key, value = heads_of("query"), heads_of("key"), heads_of("value")
        gates = None
        if model.position_bias == "gated":
            gates = Gates(model.init_std, name="gates")(query)
        attend = fused.attend if is_fused(model) else dense_attention
        mixed = attend(
            query,
            key,
            value,
            context.query_segment_ids,
            context.key_segment_ids,
            context.bias,
            gates,
            context.seeds(site=1),
            model.attention_dropout,
        ).reshape(rows, length, hidden)
        return Dense(hidden, dtype, model.init_std, dtype, name="output")(mixed)


def is_fused(model: Model) -> bool:
    """Whether attention is a kernel: as `model.attention` says; by itself, not on CPUs."""
    if model.attention == "auto":
        return devices.platform() in fused.KERNELS
    return model.attention == "fused"


def shared_bias(params: Params, model: Model, length: int) -> jax.Array:
    """The relative position bias of all layers, in the form that attention takes: for rows of this
    length float32 [heads, length, length] if it is dense, else as `fused_attention.attend` says."""
    table = params["table"]
    check("shared_bias", table=(f"float32 [{model.position_buckets}, {model.heads}]", table))
    if is_fused(model):
        size = model.hidden // model.heads
        length, block = fused.padded_length(length, size, model.dtype)
    line = run(PositionBias(model), params, length)
    return bias_tiles(line, block) if is_fused(model) else bias_tiles(line, length)[:, 0]
