"""The public attention checks pass for xlj's attention and detect known leaks between examples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.models.attention import attention_checks
from xlj.models.attention.attention_checks import check_attention
from xlj.models.attention.blocks import LocalBlocks
from xlj.models.attention.choosing import IMPLEMENTATIONS
from xlj.models.attention.interface import Operands

KERNELS = ("triton", "tpu")


def function_of(implementation):
    """Returns the function that `check_attention` takes."""
    return lambda query, key, value, mask: implementation.attend(Operands(query, key, value, mask))


dense_attention = function_of(IMPLEMENTATIONS["dense"])


@pytest.mark.parametrize("name", ["dense", "chunks"])
def test_implementations_pass(name):
    check_attention(jax.jit(function_of(IMPLEMENTATIONS[name])))


@pytest.mark.parametrize("name", ["dense", "chunks"])
@pytest.mark.parametrize("window", [0, 1, 20, 64, 149, 200])
def test_implementations_pass_with_a_window(name, window):
    check_attention(jax.jit(function_of(IMPLEMENTATIONS[name])), rows=1, heads=1, window=window)


@pytest.mark.parametrize("window, length", [(20, 256), (70, 330)])
def test_blocks_pass(window, length):
    attention = jax.jit(function_of(LocalBlocks()))
    check_attention(attention, rows=1, heads=1, length=length, window=window)


@pytest.mark.parametrize("window", [None, 20])
def test_cudnn_passes(window, monkeypatch):
    """XLA computes what cuDNN would compute, also for queries that see no key."""
    by_xla = jax.nn.dot_product_attention
    monkeypatch.setattr(
        jax.nn, "dot_product_attention", lambda *a, mask, implementation: by_xla(*a, mask=mask)
    )
    attention = jax.jit(function_of(IMPLEMENTATIONS["cudnn"]))
    check_attention(attention, rows=1, length=60, window=window)


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 0, 20, 64])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_pass(name, window):
    attention = jax.jit(function_of(IMPLEMENTATIONS[name]))
    check_attention(attention, rows=1, heads=1 if window else 2, window=window)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_respect_the_edges_of_the_window(name):
    """Runs only the last part of `check_attention`, which is fast for three blocks of keys."""
    block, window = IMPLEMENTATIONS[name].kernels.block(16, jnp.float32), 9
    attention = jax.jit(function_of(IMPLEMENTATIONS[name]))
    rng = np.random.default_rng(0)
    q, k, v, weights = jnp.asarray(rng.normal(size=(4, 1, 2 * block + 9, 1, 16)), jnp.float32)
    attention_checks._check_window_ends(attention, (q, k, v), weights, window)


def test_packed_examples_are_contiguous_and_in_order():
    """Attention functions that search for the ends of segments may rely on sorted segment ids."""
    recorded = []

    def attention(q, k, v, mask):
        recorded.append(np.asarray(mask.query_segment_ids))
        return dense_attention(q, k, v, mask)

    check_attention(attention)
    packed = recorded[0]
    assert (np.diff(packed[:, :-15]) >= 0).all() and (packed[:, -15:] == 0).all()
    assert (np.ptp(packed, axis=1) == 5).all()


def masked(sees):
    """Returns attention with a mask that `sees` computes from both vectors of ids."""

    def attention(q, k, v, mask):
        mask = sees(mask.query_segment_ids, mask.key_segment_ids)[:, None]
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        weights = jnp.where(mask, jax.nn.softmax(jnp.where(mask, scores, -1e30)), 0)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v)

    return attention


def by_ids(query_ids, key_ids):
    return query_ids[:, :, None] == key_ids[:, None, :]


def by_span(query_ids, key_ids):
    """Returns a mask from the first key that a query sees to the last, including all between."""
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


def test_a_correct_mask_passes():
    check_attention(masked(by_ids))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_mask_is_detected(name):
    with pytest.raises(AssertionError):
        check_attention(masked(WRONG[name]))


def by_window(before, behind):
    """Returns a mask of keys from `before` places before the query to `behind` places after it."""

    def sees(query_ids, key_ids):
        places = jnp.arange(query_ids.shape[1])
        distance = places - places[:, None]
        return by_ids(query_ids, key_ids) & (-before <= distance) & (distance <= behind)

    return sees


def check_window(attention):
    check_attention(attention, rows=1, heads=1, length=60, window=12)


def test_a_correct_window_passes():
    check_window(masked(by_window(12, 12)))


@pytest.mark.parametrize(
    "before, behind", [(11, 11), (13, 13), (12, 11), (12, 13), (6, 6), (12, 0), (0, 12), (60, 60)]
)
def test_a_wrong_window_is_detected(before, behind):
    with pytest.raises(AssertionError):
        check_window(masked(by_window(before, behind)))


@pytest.mark.parametrize("forward, backward", [(12, 13), (13, 12), (12, 11)])
def test_a_different_window_in_the_gradient_is_detected(forward, backward):
    attentions = [masked(by_window(window, window)) for window in (forward, backward)]

    @jax.custom_vjp
    def attention(*arrays):
        return attentions[0](*arrays)

    attention.defvjp(
        lambda *arrays: (attention(*arrays), arrays),
        lambda arrays, gradient: jax.vjp(attentions[1], *arrays)[1](gradient),
    )
    with pytest.raises(AssertionError):
        check_window(attention)


def test_a_key_one_place_too_far_is_detected_despite_a_small_effect():
    """The outputs then differ from those of the formula by less than the tolerance."""
    right, wrong = masked(by_window(12, 12)), masked(by_window(13, 13))

    def attention(*arrays):
        return right(*arrays) + 1e-5 * jax.lax.stop_gradient(wrong(*arrays) - right(*arrays))

    with pytest.raises(AssertionError, match="window .* depend on the key at this index"):
        check_window(attention)


@pytest.mark.parametrize("differences", [False, True])
def test_a_leak_only_in_the_gradient_is_detected(differences):
    """The leak sums gradients over tokens, or the differences of neighbouring dimensions."""

    @jax.custom_vjp
    def leaky(v):
        return v

    def leak(_, g):
        leaking = jnp.roll(g, 1, 3) - g if differences else g
        return (g + 1e-12 * leaking.sum(1, keepdims=True),)

    leaky.defvjp(lambda v: (v, None), leak)
    with pytest.raises(AssertionError, match="value .* changes"):
        check_attention(lambda q, k, v, mask: dense_attention(q, k, leaky(v), mask))


def test_non_zero_outputs_without_a_key_are_detected():
    def uniform(q, k, v, mask):
        mask = by_ids(mask.query_segment_ids, mask.key_segment_ids)[:, None]
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)

    with pytest.raises(AssertionError):
        check_attention(uniform)
