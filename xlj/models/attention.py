"""Self-attention whose pattern is two integer vectors a row: i sees j where their ids agree."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.models.dense import Dense, precision_of
from xlj.models.dropout import Rngs, dropout
from xlj.models.position_bias import Gates


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al., 2017), without the residual connection."""

    model: Model

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        query_segment_ids: jax.Array,
        key_segment_ids: jax.Array,
        rngs: Rngs,
        bias: jax.Array | None = None,
    ) -> jax.Array:
        """x [rows, length, hidden], ids int32 [rows, length] -> float32 [rows, length, hidden].

        A query that sees no key gets zeros (before the output layer), never NaN. `bias`, float32
        [heads, length, length], is added to the scores, gated by the query if the model says so.
        """
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        rows, length, hidden = x.shape

        def heads_of(name: str) -> jax.Array:
            projected = Dense(hidden, dtype, model.init_std, name=name)(x)
            return projected.astype(dtype).reshape(rows, length, model.heads, -1)

        query, key, value = heads_of("query"), heads_of("key"), heads_of("value")
        einsum = partial(
            jnp.einsum, precision=precision_of(dtype), preferred_element_type=jnp.float32
        )
        scores = einsum("bqhd,bkhd->bhqk", query, key)
        seen = (query_segment_ids[:, :, None] == key_segment_ids[:, None, :])[:, None]
        scores = scores * (hidden // model.heads) ** -0.5
        if bias is not None:
            is_gated = model.position_bias == "gated"
            gate = Gates(model.init_std, name="gates")(query) if is_gated else 1.0
            scores = scores + bias * gate
        scores = jnp.where(seen, scores, -1e30)
        weights = jnp.where(seen, jax.nn.softmax(scores), 0)
        weights = dropout(weights, rngs, 1, model.attention_dropout).astype(dtype)
        mixed = einsum("bhqk,bkhd->bqhd", weights, value).reshape(rows, length, hidden)
        return Dense(hidden, dtype, model.init_std, name="output")(mixed)
