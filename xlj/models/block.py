"""A transformer block: two sub-layers, each with its residual connection and norm.

A block takes its attention, its feed-forward layer and the residual connection of each as
arguments. Any module with the signature of `SubLayer` can be a sub-layer. `RESIDUALS` lists the
residual connections.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models import dropout, fused_norm
from xlj.models.dropout import Rngs
from xlj.models.norms import norm, norm_parameters
from xlj.models.rotary import Rotations
from xlj.sharding import devices


class Stream(NamedTuple):
    """The residual stream: hidden vectors [rows, length, hidden] between sub-layers."""

    wide: jax.Array
    """float32, to which updates are added."""
    narrow: jax.Array | None
    """The same vectors in the type of products, if a kernel wrote them; else None."""

    @property
    def read(self) -> jax.Array:
        """The vectors that a sub-layer takes as its input."""
        return self.wide if self.narrow is None else self.narrow


class Context(NamedTuple):
    """The inputs of sub-layers other than the hidden vectors."""

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
    rotations: Mapping[bool, Rotations] = MappingProxyType({})
    """Rotary positions in full and in local layers (`rotary.of_layers`)."""

    def seeds(self, site: int) -> jax.Array | None:
        """Returns the dropout seeds for a site of the layer, int32 [rows]; None in evaluation."""
        return None if self.rngs is None else dropout.row_seeds(self.rngs, self.layer, site)


class SubLayer(Protocol):
    """Computes the update that a residual connection adds to the stream."""

    def __call__(self, x: jax.Array, context: Context, /) -> jax.Array:
        """Maps x [rows, length, hidden], float32 or narrower, to an update of the same shape."""


class Residual(Protocol):
    """Adds a sub-layer's update to the stream, after dropout.

    It is a module. The scale and bias of its norm are its parameters.
    """

    def __call__(self, stream: Stream, sub_layer: SubLayer, context: Context, /) -> Stream:
        """Maps the stream before the sub-layer to the stream after it."""


class NoNorm(nn.Module):
    """x + sub_layer(x): the first sub-layer of ModernBERT, which follows the embeddings' norm.

    Attributes:
      site: of its dropout (`Context.seeds`).
      rate: of its dropout.
    """

    model: Model
    site: int
    rate: float

    @nn.compact
    def __call__(self, stream: Stream, sub_layer: SubLayer, context: Context) -> Stream:
        """Same as `Residual.__call__`."""
        return _add_update(
            stream.wide, sub_layer(stream.wide, context), context, self.site, self.rate
        )


class PreNorm(nn.Module):
    """x + sub_layer(norm(x)), as in XLM-R XL. `rate` and `site` as in `NoNorm`."""

    model: Model
    site: int
    rate: float

    @nn.compact
    def __call__(self, stream: Stream, sub_layer: SubLayer, context: Context) -> Stream:
        """Same as `Residual.__call__`."""
        scale, bias = norm_parameters(self, self.model)
        update = sub_layer(norm(stream.wide, scale, bias, self.model), context)
        return _add_update(stream.wide, update, context, self.site, self.rate)


class PostNorm(nn.Module):
    """norm(x + sub_layer(x)), as in XLM-R. `rate` and `site` as in `NoNorm`."""

    model: Model
    site: int
    rate: float

    @nn.compact
    def __call__(self, stream: Stream, sub_layer: SubLayer, context: Context) -> Stream:
        """Same as `Residual.__call__`; one kernel if the stream has narrow vectors."""
        model, x, rate = self.model, stream.wide, self.rate
        scale, bias = norm_parameters(self, model)
        update, seeds = sub_layer(stream.read, context), context.seeds(self.site)
        if stream.narrow is None:
            update = dropout.drop(update.astype(jnp.float32), seeds, rate)
            return Stream(norm(x + update, scale, bias, model), None)
        if seeds is None:
            seeds, rate = jnp.zeros(len(x), jnp.int32), 0.0
        interpret = devices.platform() != "gpu"
        dtype = jnp.dtype(model.dtype)
        options = fused_norm.Options(model.layer_norm_epsilon, rate, dtype, interpret)
        assert bias is not None, "stream_of returns narrow vectors for LayerNorm only"
        return Stream(*fused_norm.add_norm(options, x, update, scale, bias, seeds))


def _add_update(
    x: jax.Array, update: jax.Array, context: Context, site: int, rate: float
) -> Stream:
    return Stream(x + dropout.drop(update.astype(jnp.float32), context.seeds(site), rate), None)


RESIDUALS = {"post": PostNorm, "pre": PreNorm, "embeddings": PreNorm}
"""The residual connection of each value of `model.norm`."""


class Block(nn.Module):
    """A transformer block. Its parameters have the names of its fields."""

    attention: SubLayer
    attention_norm: Residual
    feed_forward: SubLayer
    feed_forward_norm: Residual

    def __call__(self, stream: Stream, context: Context) -> Stream:
        """Maps the stream before the block to the stream after it."""
        stream = self.attention_norm(stream, self.attention, context)
        return self.feed_forward_norm(stream, self.feed_forward, context)


def stream_of(x: jax.Array, model: Model) -> Stream:
    """Returns the stream before the first block, from the output of the embeddings."""
    check("stream_of", x=("float32 [rows, length, hidden]", x))
    return Stream(x, x.astype(model.dtype) if _is_fused(model, x.shape[1]) else None)


def _is_fused(model: Model, length: int) -> bool:
    """Returns whether a kernel writes the stream in both types: on GPUs, with bfloat16."""
    has_kernel = model.norm == "post" and model.norm_type == "layer"
    fits = has_kernel and length % fused_norm.MULTIPLE == 0
    return devices.platform() == "gpu" and model.dtype == "bfloat16" and fits
