"""The head of the objective `word_hmm`: scores of translations, and of jumps (ours).

A jump is the move of the position in the source sentence from one target token to the next
(`alignment_math/hmm.py`).
"""

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models.dense import matmul
from xlj.models.lowering import precision_of
from xlj.sharding.trees import Params

NOISE = 1024
"""Number of other pieces with which a translation is compared, to estimate the softmax."""


def init(rng: jax.Array, model: Model, longest_jump: int) -> Params:
    """Returns new parameters of the head, all float32.

    `query/kernel` and `key/kernel` [hidden, hidden] start as the identity, so that pieces which
    occur on both sides, such as names and numbers, match from the start. `null_bias` [hidden] is
    drawn from N(0, init_std^2). `jump_bias` [2 longest_jump + 1] has the logits of jumps from
    -longest_jump to longest_jump. They start at -0.3 |jump - 1|, so the jump to the next word is
    the most likely one.
    """
    check("init", rng=("key []", rng))
    jumps = jnp.abs(jnp.arange(-longest_jump, longest_jump + 1) - 1.0)
    return {
        "query": {"kernel": jnp.eye(model.hidden)},
        "key": {"kernel": jnp.eye(model.hidden)},
        "null_bias": model.init_std * jax.random.normal(rng, (model.hidden,)),
        "jump_bias": -0.3 * jumps,
    }


def keys(head: Params, model: Model, table: jax.Array, tokens: jax.Array) -> jax.Array:
    """Computes the keys of pieces, float32 [..., n, hidden].

    Args:
      table: the word embeddings, float32 [vocabulary, hidden].
      tokens: ids of the pieces, int [..., n].
    """
    check(
        "keys",
        table=("float [vocabulary, hidden]", table),
        tokens=("int [..., n]", tokens),
    )
    return matmul(table[tokens], head["key"]["kernel"], jnp.dtype(model.dtype))


def queries(head: Params, model: Model, hidden: jax.Array) -> jax.Array:
    """Computes the queries of tokens from their vectors.

    `head["null_bias"]` is one more query, of the null word: it generates the pieces that translate
    no token.

    Args:
      hidden: vectors of tokens, float [rows, n, hidden].

    Returns:
      float32 [rows, n, hidden].
    """
    check(
        "queries",
        hidden=("float [rows, n, hidden]", hidden),
        kernel=("float [hidden, hidden]", head["query"]["kernel"]),
    )
    return matmul(hidden, head["query"]["kernel"], jnp.dtype(model.dtype))


def products(queries: jax.Array, keys: jax.Array, dtype: str) -> jax.Array:
    """Multiplies queries [..., m, hidden] with keys [..., n, hidden]: float32 [..., m, n].

    Args:
      dtype: of the factors; sums are in float32.
    """
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
    """Estimates log(p(piece | query) / p(piece)) from the score of a query and a piece.

    The estimate is the one of InfoNCE (van den Oord et al., 2018): it uses the piece's share of the
    softmax among NOISE other pieces. So the result is at most log(NOISE + 1).

    Args:
      score: products of queries and keys, float32 [..., m, n].
      normaliser: log of the mean of exp(score) over pieces, weighted by their frequency. It
        broadcasts to `score`. Training drives it towards 0, so inference uses 0.

    Returns:
      float32 [..., m, n].
    """
    check("log_ratio", score=("float [...]", score))
    among = jnp.log(NOISE) + normaliser
    return score - jnp.logaddexp(score, among) + jnp.log(NOISE + 1.0)
