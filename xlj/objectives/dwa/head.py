"""XLM-Align's pointer network, which points from a token to its translation."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models.dense import Dense
from xlj.models.lowering import precision_of
from xlj.models.modules import init_head, run
from xlj.sharding.trees import Params


class Pointer(nn.Module):
    """XLM-Align's pointer network (Equations 11 to 13).

    It is one attention head. The linear maps of queries and of keys have a bias.
    """

    model: Model

    @nn.compact
    def __call__(self, queries: jax.Array, keys: jax.Array) -> jax.Array:
        """Computes scores, float32 [rows, q, k], before the softmax.

        Args:
          queries: vectors of the tokens that point, float [rows, q, hidden].
          keys: vectors of the tokens to point to, float [rows, k, hidden].
        """
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        q = Dense(model.hidden, dtype, model.init_std, name="query")(queries).astype(dtype)
        k = Dense(model.hidden, dtype, model.init_std, name="key")(keys).astype(dtype)
        scores = jnp.einsum(
            "rqh,rkh->rqk", q, k, precision=precision_of(dtype), preferred_element_type=jnp.float32
        )
        return scores * model.hidden**-0.5


def init_pointer(rng: jax.Array, model: Model) -> Params:
    """Returns new parameters of a `Pointer` head."""
    vectors = jnp.zeros((1, 1, model.hidden))
    return init_head("init_pointer", Pointer(model), rng, vectors, vectors)


def point(params: Params, model: Model, queries: jax.Array, keys: jax.Array) -> jax.Array:
    """Computes the scores of a `Pointer` head, float32 [rows, q, k].

    Args:
      queries: vectors of the tokens that point, float [rows, q, hidden].
      keys: vectors of the tokens to point to, float [rows, k, hidden].
    """
    check(
        "point",
        queries=(f"float [rows, q, {model.hidden}]", queries),
        keys=(f"float [rows, k, {model.hidden}]", keys),
    )
    return run(Pointer(model), params, queries, keys)
