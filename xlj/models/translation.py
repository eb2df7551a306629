"""The head of word alignment: what translates a token, and where the next token's is (ours)."""

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models.dense import matmul, precision_of
from xlj.models.encoder import Params

NOISE = 1024
"""Pieces that a translation is told apart from."""


def init(rng: jax.Array, model: Model, longest_jump: int) -> Params:
    """Its parameters. Pieces that stand on both sides go together from the start, as names and
    numbers do, and small steps to the right are likelier than others."""
    check("init", rng=("key []", rng))
    jumps = jnp.abs(jnp.arange(-longest_jump, longest_jump + 1) - 1.0)
    return {
        "query": {"kernel": jnp.eye(model.hidden)},
        "key": {"kernel": jnp.eye(model.hidden)},
        "null_bias": model.init_std * jax.random.normal(rng, (model.hidden,)),
        "jump_bias": -0.3 * jumps,
    }


def keys(head: Params, model: Model, table: jax.Array, tokens: jax.Array) -> jax.Array:
    """What pieces are found by: int [..., n] of the word embeddings, float32 [vocabulary, hidden]
    -> float32 [..., n, hidden]."""
    check(
        "keys",
        table=("float [vocabulary, hidden]", table),
        tokens=("int [..., n]", tokens),
    )
    return matmul(table[tokens], head["key"]["kernel"], jnp.dtype(model.dtype))


def queries(head: Params, model: Model, hidden: jax.Array) -> jax.Array:
    """What tokens ask for, of their vectors: float [rows, n, hidden] -> float32 likewise. What no
    token translates is asked for by `head["null_bias"]`."""
    check(
        "queries",
        hidden=("float [rows, n, hidden]", hidden),
        kernel=("float [hidden, hidden]", head["query"]["kernel"]),
    )
    return matmul(hidden, head["query"]["kernel"], jnp.dtype(model.dtype))


def products(queries: jax.Array, keys: jax.Array, dtype: str) -> jax.Array:
    """[..., m, hidden] and [..., n, hidden] -> float32 [..., m, n]."""
    check(
        "products",
        queries=("float [batch..., m, hidden]", queries),
        keys=("float [batch..., n, hidden]", keys),
    )
    return jnp.einsum(
        "...mh,...nh->...mn",
        queries.astype(dtype),
        keys.astype(dtype),
        precision=precision_of(jnp.dtype(dtype)),
        preferred_element_type=jnp.float32,
    )


def log_ratio(score: jax.Array, normaliser: jax.Array | float = 0.0) -> jax.Array:
    """How much likelier a piece is with a query than by chance, as a logarithm, at most that of
    NOISE + 1: its share among NOISE other pieces (as InfoNCE has it: van den Oord et al., 2018).

    Args:
      score: products of queries and keys, float32 [..., m, n].
      normaliser: log of the mean of exp(score) over pieces as they come, broadcast to `score`: 0
        where it is not known, which the objective teaches.
    """
    check("log_ratio", score=("float [...]", score))
    among = jnp.log(NOISE) + normaliser
    return score - jnp.logaddexp(score, among) + jnp.log(NOISE + 1.0)
