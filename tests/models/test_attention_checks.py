"""The public checks pass for our attention, and notice each way in which examples have leaked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.models.attention_checks import check_attention
from xlj.models.dense_attention import dense_attention
from xlj.models.fused_attention.attend import KERNELS, attend


def test_dense_attention_passes():
    check_attention(dense_attention)


@pytest.mark.slow
@pytest.mark.parametrize("platform", KERNELS)
def test_kernels_pass(platform):
    check_attention(jax.jit(lambda *arrays: attend(*arrays, platform=platform)), rows=1)


def test_packed_examples_are_whole_and_one_after_the_other():
    """As an attention function may take for granted that finds their ends."""
    seen = []

    def attention(q, k, v, query_ids, key_ids):
        seen.append(np.asarray(query_ids))
        return dense_attention(q, k, v, query_ids, key_ids)

    check_attention(attention)
    packed = seen[0]
    assert (np.diff(packed[:, :-15]) >= 0).all() and (packed[:, -15:] == 0).all()
    assert (np.ptp(packed, axis=1) == 5).all()


def masked(sees):
    """Attention by a mask that `sees` makes of both vectors."""

    def attention(q, k, v, query_ids, key_ids):
        mask = sees(query_ids, key_ids)[:, None]
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        weights = jnp.where(mask, jax.nn.softmax(jnp.where(mask, scores, -1e30)), 0)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v)

    return attention


def by_ids(query_ids, key_ids):
    return query_ids[:, :, None] == key_ids[:, None, :]


def by_span(query_ids, key_ids):
    """From the first key that a query sees to the last, whatever lies between."""
    sees, place = by_ids(query_ids, key_ids), np.arange(query_ids.shape[1])
    first = jnp.where(sees, place, len(place)).min(2, keepdims=True)
    last = jnp.where(sees, place, -1).max(2, keepdims=True)
    return (place >= first) & (place <= last)


WRONG = {
    "no mask": lambda q, k: jnp.ones_like(by_ids(q, k)),
    "padding alone is masked": lambda q, k: by_ids(q > 0, k > 0),
    "one token too many": lambda q, k: by_ids(q, k) | by_ids(q, jnp.roll(k, 1, 1)),
    "key ids are not read": lambda q, k: by_ids(q, q),
    "query ids are not read": lambda q, k: by_ids(k, k),
    "spans": by_span,
    "causal": lambda q, k: by_ids(q, k) & jnp.tri(q.shape[1], dtype=bool),
}


def test_the_plain_mask_passes():
    check_attention(masked(by_ids))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_mask_is_noticed(name):
    with pytest.raises(AssertionError):
        check_attention(masked(WRONG[name]))


@pytest.mark.parametrize("differences", [False, True])
def test_a_leak_in_the_gradient_alone_is_noticed(differences):
    """Of what all dimensions get, or of how they differ."""

    @jax.custom_vjp
    def leaky(v):
        return v

    def leak(_, g):
        leaking = jnp.roll(g, 1, 3) - g if differences else g
        return (g + 1e-12 * leaking.sum(1, keepdims=True),)

    leaky.defvjp(lambda v: (v, None), leak)
    with pytest.raises(AssertionError, match="value .* reaches"):
        check_attention(lambda q, k, v, *ids: dense_attention(q, k, leaky(v), *ids))


def test_what_is_not_zero_without_a_key_is_noticed():
    def uniform(q, k, v, query_ids, key_ids):
        mask = by_ids(query_ids, key_ids)[:, None]
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)

    with pytest.raises(AssertionError):
        check_attention(uniform)
