"""Attention as the papers write it, with the scores of all pairs in memory: the reference for the
kernels of `fused_attention`, and what CPUs run."""

from functools import partial

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import Specified, check
from xlj.models.dense import PRODUCT, checkpoint_name, precision_of
from xlj.models.dropout import drop


def dense_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_segment_ids: jax.Array,
    key_segment_ids: jax.Array,
    bias: jax.Array | None = None,
    gates: jax.Array | None = None,
    seeds: jax.Array | None = None,
    rate: float = 0.0,
) -> jax.Array:
    """Attention where a query sees the keys of its segment id.

    Args:
      query, key, value: [rows, length, heads, size], multiplied in their type.
      query_segment_ids, key_segment_ids: int32 [rows, length]. A query without a key gives zeros.
      bias: float32 [heads, length, length], added to the scores; or None.
      gates: float32 [rows, heads, length], the factor of the bias for each query, or None.
      seeds: int32 [rows], dropout's (`dropout.row_seeds`); None for no dropout.
      rate: of dropout.

    Returns:
      [rows, length, heads, size] of the query's type.
    """
    check_inputs(
        "dense_attention",
        query,
        key,
        value,
        query_segment_ids,
        key_segment_ids,
        bias=("float32 [heads, length, length]", bias),
        gates=gates,
        seeds=seeds,
    )
    dtype = query.dtype
    einsum = partial(jnp.einsum, precision=precision_of(dtype), preferred_element_type=jnp.float32)
    # XLA for CPUs multiplies fast what lies as batches of matrices, and does not see to it itself.
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))
    scores = einsum("bhqd,bhkd->bhqk", query, key) * query.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + (bias if gates is None else bias * gates[..., None])
    seen = (query_segment_ids[:, :, None] == key_segment_ids[:, None, :])[:, None]
    scores = jnp.where(seen, scores, -1e30)
    weights = jnp.where(seen, jax.nn.softmax(scores), 0)
    weights = drop(weights, seeds, rate).astype(dtype)
    mixed = einsum("bhqk,bhkd->bhqd", weights, value).swapaxes(1, 2)
    return checkpoint_name(mixed.astype(dtype), PRODUCT)


def check_inputs(
    function: str,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_segment_ids: jax.Array,
    key_segment_ids: jax.Array,
    *,
    bias: Specified,
    gates: jax.Array | None,
    seeds: jax.Array | None,
) -> None:
    """Checks what a function of attention is given, as `xlj.contracts.arrays.check`; `bias` says
    what that is to be."""
    heads = "[rows, length, heads, size]"
    check(
        function,
        query=(f"float {heads}", query),
        key=(f"{query.dtype} {heads}", key),
        value=(f"{query.dtype} {heads}", value),
        query_segment_ids=("int32 [rows, length]", query_segment_ids),
        key_segment_ids=("int32 [rows, length]", key_segment_ids),
        bias=bias,
        gates=("float32 [rows, heads, length]", gates),
        seeds=("int32 [rows]", seeds),
    )
