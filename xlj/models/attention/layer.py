"""Self-attention in which a query sees the keys with the same segment id.

Each row has two vectors of segment ids: one for its tokens as queries, one for its tokens as keys.
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models.attention import choosing, interface
from xlj.models.attention.interface import Mask, Operands
from xlj.models.block import Context
from xlj.models.dense import Dense
from xlj.models.modules import run
from xlj.models.positions import Gates, PositionBias, bias_tiles, rotate
from xlj.sharding.trees import Params


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al., 2017), without the residual connection.

    `model.groups` is the number of heads of keys and values. If it is smaller than the number of
    query heads, neighbouring query heads share a head of keys and values (grouped-query attention,
    Ainslie et al., 2023). In a local layer, a query sees only keys at a distance of at most
    `model.local_attention // 2` in the row.
    """

    model: Model
    is_local: bool = False

    @nn.compact
    def __call__(self, x: jax.Array, context: Context) -> jax.Array:
        """Maps x float [rows, length, hidden] -> [rows, length, hidden] in `model.dtype`.

        The position bias, multiplied by the query's gate if the model has gates, is added to the
        scores. For a query that sees no key, the input of the output layer is zero, not NaN.
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
        ids = context.query_segment_ids, context.key_segment_ids
        mask = Mask(*ids, interface.window_of(model, self.is_local))
        seeds, rate = context.seeds(site=1), model.attention_dropout
        operands = Operands(query, key, value, mask, context.bias, gates, seeds, rate)
        attend = choosing.choose_for(model, self.is_local, length).implementation.attend
        output = attend(operands).reshape(rows, length, hidden)
        return linear(hidden, has_bias="output" in model.biases, name="output")(output)


def shared_bias(params: Params, model: Model, length: int) -> jax.Array:
    """Returns the relative position bias that all layers share, in the form that attention needs.

    No implementation with a bias depends on the window, so local layers have the form of full
    layers.

    Args:
      params: of a `PositionBias`.
      length: of a row, in tokens.

    Returns:
      The tiles of `positions.bias_tiles`, float32 [heads, 2 n - 1, block, block]. Here n is the
      number of blocks of a row after padding. The block is that of the implementation
      (`Implementation.bias_block`).
    """
    table = params["table"]
    check("shared_bias", table=(f"float32 [{model.position_buckets}, {model.heads}]", table))
    request = interface.request_of(model, False, length)
    block = choosing.choose(model.attention, request).implementation.bias_block(request)
    padded = interface.count_blocks(length, block) * block
    return bias_tiles(run(PositionBias(model), params, padded), block)
