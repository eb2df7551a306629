"""The methods of alignment: from vectors of tokens to soft alignments and links.

| method | soft alignment | links |
|---|---|---|
| optimal_transport | the transport plan | `itermax` of it |
| released | the smaller of the plan normalised by rows and by columns | `released` |
| argmax, itermax, match | (cosine + 1) / 2, times the prior | of that name |
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.alignment_math import extraction
from xlj.alignment_math.sinkhorn import same_example, sinkhorn
from xlj.contracts.arrays import check


class Alignment(NamedTuple):
    """Of tokens, each [..., m, n]."""

    soft: jax.Array  # float32, between 0 and 1, 0 between examples: how much two tokens go together
    links: jax.Array | None  # bool; None of match, whose links `extraction.match` finds on the host


def align(
    method: str,
    source: jax.Array,
    target: jax.Array,
    source_ids: jax.Array,
    target_ids: jax.Array,
    prior: float = 0.0,
) -> Alignment:
    """Aligns tokens by their vectors.

    Args:
      method: one of `config.choices.METHODS`. Those of XLM-Align compare by products, those of
        SimAlign by (cosine + 1) / 2.
      source, target: float [..., m, hidden] and [..., n, hidden].
      source_ids, target_ids: int32 [..., m] and [..., n], as in `same_example`.
      prior: the strength of `diagonal`, by which similarities are multiplied; 0 is none.
    """
    check(
        "align",
        source=("float [..., m, hidden]", source),
        target=("float [..., n, hidden]", target),
        source_ids=("int32 [..., m]", source_ids),
        target_ids=("int32 [..., n]", target_ids),
    )
    same = same_example(source_ids, target_ids)
    weight = diagonal(source_ids, target_ids, prior) if prior else 1
    if method in ("optimal_transport", "released"):
        transport = sinkhorn(_products(source, target) * weight, source_ids, target_ids)
        if method == "released":
            soft = jnp.minimum(transport.by_rows, transport.by_columns)
            return Alignment(soft, extraction.released(transport))
        links = extraction.itermax(transport.plan, source_ids, target_ids)
        return Alignment(transport.plan, links)
    similarity = (1 + _products(_unit(source), _unit(target))) / 2 * weight
    soft = jnp.where(same, similarity, 0)
    if method == "match":
        return Alignment(soft, None)
    extract = {"argmax": extraction.argmax, "itermax": extraction.itermax}[method]
    return Alignment(soft, extract(similarity, source_ids, target_ids))


def diagonal(source_ids: jax.Array, target_ids: jax.Array, strength: float) -> jax.Array:
    """A prior on the diagonal: exp(-strength |i / m - j / n|) for the i-th of the m tokens of an
    example's source and the j-th of the n of its target, from 1, as fast_align has it before
    normalisation (Dyer, Chahuneau and Smith, 2013, section 2, where strength is lambda).

    Args:
      source_ids, target_ids: as of `align`.
      strength: at least 0.

    Returns:
      float32 [..., m, n]; 0 between examples.
    """
    check(
        "diagonal",
        source_ids=("int32 [..., m]", source_ids),
        target_ids=("int32 [..., n]", target_ids),
    )
    source, target = _progress(source_ids), _progress(target_ids)
    distance = jnp.abs(source[..., :, None] - target[..., None, :])
    return jnp.where(same_example(source_ids, target_ids), jnp.exp(-strength * distance), 0)


def _progress(ids: jax.Array) -> jax.Array:
    """i / m of the i-th of an example's m tokens, from 1: int32 [..., m] -> float32 [..., m]."""
    same = same_example(ids, ids)
    place = jnp.tril(same).sum(-1, dtype=jnp.float32)
    return place / jnp.maximum(same.sum(-1, dtype=jnp.float32), 1)


def _products(source: jax.Array, target: jax.Array) -> jax.Array:
    """[..., m, hidden] and [..., n, hidden] -> float32 [..., m, n], exact on every backend."""
    return jnp.einsum("...mh,...nh->...mn", source, target, precision=jax.lax.Precision.HIGHEST)


def _unit(vectors: jax.Array) -> jax.Array:
    return vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
