"""The residual stream of a post-LN encoder: a sub-layer's update is added, the sum normalised."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models import dropout, fused_norm
from xlj.models.dense import norm
from xlj.models.dropout import Rngs
from xlj.sharding import devices


class Stream(NamedTuple):
    """The hidden vectors [rows, length, hidden] between sub-layers."""

    wide: jax.Array
    """float32, what updates are added to."""
    narrow: jax.Array | None
    """The same as products read it, where a kernel wrote it so; else None."""

    @property
    def read(self) -> jax.Array:
        """What a sub-layer reads."""
        return self.wide if self.narrow is None else self.narrow


def stream_of(x: jax.Array, model: Model) -> Stream:
    """The stream that begins with the embeddings' output."""
    check("stream_of", x=("float32 [rows, length, hidden]", x))
    return Stream(x, x.astype(model.dtype) if _is_fused(model, x.shape[1]) else None)


class AddNorm(nn.Module):
    """Adds an update after dropout, and applies LayerNorm, with its parameters."""

    model: Model

    @nn.compact
    def __call__(
        self, x: Stream, update: jax.Array, rngs: Rngs, layer: int | jax.Array, site: int
    ) -> Stream:
        """`update` [rows, length, hidden]; `rngs`, `layer` and `site` as in `dropout`."""
        model = self.model
        scale = self.param("scale", nn.initializers.ones, (model.hidden,))
        bias = self.param("bias", nn.initializers.zeros, (model.hidden,))
        rows, length, _ = update.shape
        seeds = None if rngs is None else dropout.row_seeds(rngs, layer, site)
        rate, epsilon = model.dropout, model.layer_norm_epsilon
        if x.narrow is None:
            update = dropout.drop(update.astype(jnp.float32), seeds, rate)
            return Stream(norm(x.wide + update, scale, bias, epsilon), None)
        if seeds is None:
            seeds, rate = jnp.zeros(rows, jnp.int32), 0.0
        interpret = devices.platform() != "gpu"
        options = fused_norm.Options(epsilon, rate, jnp.dtype(model.dtype), interpret)
        return Stream(*fused_norm.add_norm(options, x.wide, update, scale, bias, seeds))


def _is_fused(model: Model, length: int) -> bool:
    """On GPUs in bfloat16: in float32 there is nothing to write twice."""
    fits = model.norm == "post" and length % fused_norm.MULTIPLE == 0
    return devices.platform() == "gpu" and model.dtype == "bfloat16" and fits
