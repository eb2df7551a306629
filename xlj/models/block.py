"""A transformer block: two sub-layers, each with its residual connection and norm.

The constructor of a block takes the attention, the feed-forward layer, and a residual connection
for each of them. Any module with the signature of `SubLayer` can be a sub-layer. `RESIDUALS` lists
the residual connections.

The feed-forward sub-layer is here; the attention sub-layer is in `attention/layer.py`.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models import dropout, fused_norm, pallas
from xlj.models.dense import Weights, geglu, gelu, linear, swiglu
from xlj.models.dropout import Rngs
from xlj.models.norms import norm, norm_parameters
from xlj.models.positions import Rotations
from xlj.sharding import devices


class Stream(NamedTuple):
    """The residual stream: hidden vectors [rows, length, hidden] between sub-layers."""

    wide: jax.Array
    """float32 vectors, to which sub-layers add their updates."""
    narrow: jax.Array | None
    """The vectors of `wide` rounded to the dtype of products, if a kernel wrote them; else None."""

    @property
    def read(self) -> jax.Array:
        """The vectors that a sub-layer reads: `narrow` if it exists, else `wide`."""
        return self.wide if self.narrow is None else self.narrow


class Context(NamedTuple):
    """The inputs of sub-layers other than the hidden vectors."""

    query_segment_ids: jax.Array
    """int32 [rows, length]."""
    key_segment_ids: jax.Array
    """int32 [rows, length]."""
    rngs: Rngs
    """A random key for each row [rows], for dropout; None in evaluation."""
    layer: int | jax.Array
    """The one-based number of the layer; dropout of the embeddings uses 0."""
    bias: jax.Array | None = None
    """The position bias that all layers share (`layer.shared_bias`); None without one."""
    rotations: Mapping[bool, Rotations] = MappingProxyType({})
    """Rotary positions of local layers (key True) and full layers (key False); empty for models
    without rotary positions (`positions.rotations_of_layers`)."""

    def seeds(self, site: int) -> jax.Array | None:
        """Returns the dropout seeds for one site of the layer, int32 [rows]; None in evaluation.

        Args:
          site: a number that identifies the dropout within the layer: 1 in attention, 2 after
            attention, 3 after the feed-forward layer.
        """
        return None if self.rngs is None else dropout.row_seeds(self.rngs, self.layer, site)


class SubLayer(Protocol):
    """Computes the update that a residual connection adds to the stream."""

    def __call__(self, x: jax.Array, context: Context, /) -> jax.Array:
        """Maps x, float32 or `model.dtype` [rows, length, hidden], to an update of this shape."""


class Residual(Protocol):
    """Adds a sub-layer's update to the stream, after dropout.

    A residual connection is a Flax module. Its only parameters are the scale and bias of its norm,
    if it has one.
    """

    def __call__(self, stream: Stream, sub_layer: SubLayer, context: Context, /) -> Stream:
        """Maps the stream before the sub-layer to the stream after it."""


class NoNorm(nn.Module):
    """x + sub_layer(x), for the attention of ModernBERT's first layer.

    This attention needs no norm of its own, since it reads the output of the embeddings' norm.

    Attributes:
      site: identifies the dropout of the update in the layer (`Context.seeds`).
      rate: of this dropout.
    """

    model: Model
    site: int
    rate: float

    @nn.compact
    def __call__(self, stream: Stream, sub_layer: SubLayer, context: Context) -> Stream:
        """Maps the stream before the sub-layer to the stream after it."""
        return _add_update(
            stream.wide, sub_layer(stream.wide, context), context, self.site, self.rate
        )


class PreNorm(nn.Module):
    """x + sub_layer(norm(x)), as in XLM-R XL.

    Attributes:
      site: identifies the dropout of the update in the layer (`Context.seeds`).
      rate: of this dropout.
    """

    model: Model
    site: int
    rate: float

    @nn.compact
    def __call__(self, stream: Stream, sub_layer: SubLayer, context: Context) -> Stream:
        """Maps the stream before the sub-layer to the stream after it."""
        scale, bias = norm_parameters(self, self.model)
        update = sub_layer(norm(stream.wide, scale, bias, self.model), context)
        return _add_update(stream.wide, update, context, self.site, self.rate)


class PostNorm(nn.Module):
    """norm(x + sub_layer(x)), as in XLM-R.

    Attributes:
      site: identifies the dropout of the update in the layer (`Context.seeds`).
      rate: of this dropout.
    """

    model: Model
    site: int
    rate: float

    @nn.compact
    def __call__(self, stream: Stream, sub_layer: SubLayer, context: Context) -> Stream:
        """Maps the stream before the sub-layer to the stream after it.

        If the stream has narrow vectors, one kernel computes sum, dropout and norm.
        """
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
    """Returns the stream before the first block.

    Args:
      x: output of the embeddings, float32 [rows, length, hidden].
    """
    check("stream_of", x=("float32 [rows, length, hidden]", x))
    return Stream(x, x.astype(model.dtype) if _is_fused(model, x.shape[1]) else None)


def _is_fused(model: Model, length: int) -> bool:
    """Returns whether the kernel of `fused_norm` computes the residual connections.

    The kernel is used on GPUs, for post-norm models with LayerNorm and bfloat16, if the length is a
    multiple of `fused_norm.MULTIPLE`.
    """
    has_kernel = model.norm == "post" and model.norm_type == "layer"
    fits = has_kernel and length % fused_norm.MULTIPLE == 0
    is_gpu = devices.platform() == "gpu" and pallas.why_no_triton() is None
    return is_gpu and model.dtype == "bfloat16" and fits


ACTIVATIONS = {"gelu": gelu, "geglu": geglu, "swiglu": swiglu}
"""The activation for each value of `model.feed_forward`. The gated ones (geglu, swiglu) return half
the width of their input."""


class FeedForward(nn.Module):
    """Two linear layers with the activation `model.feed_forward` between them.

    The kernel `inner` of a gated layer has two halves side by side: the half for the activation,
    then the half for the factor. The second layer adds the bias of the first layer and computes the
    activation. So the sum of product and bias is never written to memory, and the backward pass
    needs only the product.
    """

    model: Model

    @nn.compact
    def __call__(self, x: jax.Array, _: Context) -> jax.Array:
        """Maps x, float [rows, length, hidden], to an array of the same shape in `model.dtype`."""
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        weights = partial(Weights, init_std=model.init_std)
        width = model.intermediate * (1 if model.feed_forward == "gelu" else 2)
        has_inner, has_outer = "inner" in model.biases, "outer" in model.biases
        inner, shift = weights(model.hidden, width, has_bias=has_inner, name="inner")()
        of_outer = weights(model.intermediate, model.hidden, has_bias=has_outer, name="outer")
        outer, bias = of_outer()
        x = linear(x, inner, None, dtype, dtype)
        activation = ACTIVATIONS[model.feed_forward]
        return linear(x, outer, bias, dtype, dtype, activation, shift=shift)
