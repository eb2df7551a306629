"""InfoXLM's projection of sentence vectors."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models.dense import matmul
from xlj.models.modules import init_head, run
from xlj.sharding.trees import Params


class Projection(nn.Module):
    """InfoXLM's projection for contrastive learning: a linear map without bias."""

    model: Model

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        """Maps hidden, float [..., hidden] -> float32 [..., hidden]."""
        normal = nn.initializers.normal(self.model.init_std)
        kernel = self.param("kernel", normal, (self.model.hidden, self.model.hidden))
        return matmul(hidden, kernel, jnp.dtype(self.model.dtype))


def init_projection(rng: jax.Array, model: Model) -> Params:
    """Returns new parameters of a `Projection` head."""
    return init_head("init_projection", Projection(model), rng, jnp.zeros((1, model.hidden)))


def project(params: Params, model: Model, hidden: jax.Array) -> jax.Array:
    """Projects hidden, float [..., hidden] -> float32 [..., hidden].

    Args:
      params: of a `Projection` head.
    """
    check("project", hidden=(f"float [..., {model.hidden}]", hidden))
    return run(Projection(model), params, hidden)
