"""ELECTRA's head, which predicts whether tokens were replaced."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models.dense import Dense
from xlj.models.modules import init_head, run
from xlj.sharding.trees import Params


class Detection(nn.Module):
    """ELECTRA's discriminator head: one logit per token."""

    model: Model

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        """Maps hidden, float [..., hidden] -> logits of "was replaced", float32 [...]."""
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        x = nn.gelu(Dense(model.hidden, dtype, model.init_std, name="dense")(hidden), False)
        return Dense(1, dtype, model.init_std, name="output")(x)[..., 0]


def init_detection(rng: jax.Array, model: Model) -> Params:
    """Returns new parameters of a `Detection` head."""
    return init_head("init_detection", Detection(model), rng, jnp.zeros((1, model.hidden)))


def detect(params: Params, model: Model, hidden: jax.Array) -> jax.Array:
    """Computes the logits of "was replaced": hidden, float [..., hidden] -> float32 [...].

    Args:
      params: of a `Detection` head.
    """
    check("detect", hidden=(f"float [..., {model.hidden}]", hidden))
    return run(Detection(model), params, hidden)
