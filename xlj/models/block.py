"""A transformer block: sub-layers, each with its residual connection and LayerNorm.

A block is given its attention, its feed-forward and the residual connection of each. Every module
with the signature of `SubLayer` can be a sub-layer; `RESIDUALS` lists the residual connections.
"""

from typing import NamedTuple, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models import dropout, fused_norm
from xlj.models.dense import norm, norm_parameters
from xlj.models.dropout import Rngs
from xlj.sharding import devices


class Stream(NamedTuple):
    """The residual stream: hidden vectors [rows, length, hidden] between sub-layers."""

    wide: jax.Array
    """float32, to which updates are added."""
    narrow: jax.Array | None
    """The same vectors in the type of products, where a kernel wrote them; else None."""

    @property
    def read(self) -> jax.Array:
        """The vectors that a sub-layer reads."""
        return self.wide if self.narrow is None else self.narrow


class Context(NamedTuple):
    """The inputs of sub-layers beside the hidden vectors."""

    query_segment_ids: jax.Array
    """int32 [rows, length]."""
    key_segment_ids: jax.Array
    """int32 [rows, length]."""
    rngs: Rngs
    """A random key of each row [rows], for dropout; None in evaluation."""
    layer: int | jax.Array
    """The number of the layer, from 1."""
    bias: jax.Array | None = None
    """The position bias of all layers (`attention.shared_bias`)."""

    def seeds(self, site: int) -> jax.Array | None:
        """Seeds of dropout at a site of the layer, int32 [rows]; None in evaluation."""
        return None if self.rngs is None else dropout.row_seeds(self.rngs, self.layer, site)


class SubLayer(Protocol):
    """Computes the update that a residual connection adds to the stream."""

    def __call__(self, x: jax.Array, context: Context, /) -> jax.Array:
        """x [rows, length, hidden], float32 or narrower -> an update of the same shape."""


class Residual(Protocol):
    """Adds a sub-layer's update to the stream, after dropout. A module: the scale and the bias of
    its LayerNorm are its parameters."""

    def __call__(self, stream: Stream, sub_layer: SubLayer, context: Context, /) -> Stream:
        """The stream before the sub-layer -> the stream after it."""


class PreNorm(nn.Module):
    """x + sub_layer(norm(x)), as in XLM-R XL. `site` is that of its dropout (`Context.seeds`)."""

    model: Model
    site: int

    @nn.compact
    def __call__(self, stream: Stream, sub_layer: SubLayer, context: Context) -> Stream:
        """As `Residual`."""
        model, x = self.model, stream.wide
        scale, bias = norm_parameters(self, model.hidden)
        update = sub_layer(norm(x, scale, bias, model.layer_norm_epsilon), context)
        seeds = context.seeds(self.site)
        return Stream(x + dropout.drop(update.astype(jnp.float32), seeds, model.dropout), None)


class PostNorm(nn.Module):
    """norm(x + sub_layer(x)), as in XLM-R. `site` is that of its dropout (`Context.seeds`)."""

    model: Model
    site: int

    @nn.compact
    def __call__(self, stream: Stream, sub_layer: SubLayer, context: Context) -> Stream:
        """As `Residual`; one kernel where the stream has narrow vectors."""
        model, x = self.model, stream.wide
        scale, bias = norm_parameters(self, model.hidden)
        rate, epsilon = model.dropout, model.layer_norm_epsilon
        update, seeds = sub_layer(stream.read, context), context.seeds(self.site)
        if stream.narrow is None:
            update = dropout.drop(update.astype(jnp.float32), seeds, rate)
            return Stream(norm(x + update, scale, bias, epsilon), None)
        if seeds is None:
            seeds, rate = jnp.zeros(len(x), jnp.int32), 0.0
        interpret = devices.platform() != "gpu"
        options = fused_norm.Options(epsilon, rate, jnp.dtype(model.dtype), interpret)
        return Stream(*fused_norm.add_norm(options, x, update, scale, bias, seeds))


RESIDUALS = {"post": PostNorm, "pre": PreNorm}
"""The residual connection of each value of `model.norm`."""


class Block(nn.Module):
    """A transformer block. Its parameters have the names of the fields."""

    attention: SubLayer
    attention_norm: Residual
    feed_forward: SubLayer
    feed_forward_norm: Residual

    def __call__(self, stream: Stream, context: Context) -> Stream:
        """The stream before the block -> the stream after it."""
        stream = self.attention_norm(stream, self.attention, context)
        return self.feed_forward_norm(stream, self.feed_forward, context)


def stream_of(x: jax.Array, model: Model) -> Stream:
    """The stream before the first block, from the output of the embeddings."""
    check("stream_of", x=("float32 [rows, length, hidden]", x))
    return Stream(x, x.astype(model.dtype) if _is_fused(model, x.shape[1]) else None)


def _is_fused(model: Model, length: int) -> bool:
    """Whether a kernel writes the stream twice: on GPUs in bfloat16."""
    fits = model.norm == "post" and length % fused_norm.MULTIPLE == 0
    return devices.platform() == "gpu" and model.dtype == "bfloat16" and fits
