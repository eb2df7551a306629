"""The kernels of a block's logits, on CPUs interpreted, against plain JAX."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.objectives import fused_logits, logits
from xlj.objectives.cross_entropy import cross_entropy
from xlj.sharding import devices


def problem(count=150, size=384, hidden=192, seed=0):
    """Vectors and weights, biases, labels of which some are not in the block, and a label before
    the first place that counts."""
    rng = np.random.default_rng(seed)
    vectors, weights = (
        jnp.asarray(rng.normal(size=(n, hidden)), jnp.bfloat16) for n in (count, size)
    )
    labels = rng.integers(-200, size + 200, count)
    labels[:3] = 0, 99, size - 1
    bias = jnp.asarray(rng.normal(size=size), jnp.float32)
    return vectors, weights, bias, jnp.asarray(labels, jnp.int32)


@pytest.mark.parametrize("first", [0, 100, 300])  # the first two tiles do not count with the last
def test_statistics_equal_plain_ones(first):
    given = *problem(), jnp.int32(first)
    found, wanted = fused_logits.statistics(*given), logits.statistics(*given)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape == (150,) and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_of_equal_logits_the_first_is_told():
    vectors, weights, bias, labels = problem(count=64)
    same = jnp.zeros_like(weights), bias * 0
    *_, place, _ = fused_logits.statistics(vectors, *same, labels, jnp.int32(140))
    np.testing.assert_array_equal(place, 140)


@pytest.mark.parametrize("first", [0, 100, 300])
def test_the_gradient_equals_the_plain_one(first):
    vectors, weights, bias, labels = problem(count=192)
    rng = np.random.default_rng(1)
    found = logits.block_logits(vectors, weights, bias, jnp.int32(first))
    normaliser = jax.nn.logsumexp(found, 1) + 0.3
    of_loss = jnp.asarray(rng.uniform(0.5, 2, 192), jnp.float32)
    given = vectors, weights, bias, labels, jnp.int32(first), normaliser, of_loss
    found, wanted = fused_logits.gradient(*given), logits.gradient(*given)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype == jnp.bfloat16
    found, wanted = (np.asarray(x, np.float32) for x in (found, wanted))
    assert (wanted[:, :first] == 0).all() and (wanted != 0).any(1).all()
    np.testing.assert_allclose(found, wanted, rtol=2**-7, atol=1e-6)


def test_a_whole_loss_and_its_gradients_equal_the_plain_ones(monkeypatch):
    """Of three blocks, the last of which is moved back, and vectors that do not fill tiles."""
    vectors, table, bias, labels = problem(count=100, size=700)
    labels = jnp.clip(labels, 0, 699)
    weights = jnp.asarray(np.random.default_rng(2).uniform(0.5, 2, 100), jnp.float32)

    def all_of_it():
        def total(vectors, table, bias):
            losses, correct = cross_entropy(vectors, table, bias, labels, jnp.bfloat16, 256)
            return (losses * weights).sum(), (losses, correct)

        arrays = vectors.astype(jnp.float32), table.astype(jnp.float32), bias
        return jax.value_and_grad(total, (0, 1, 2), has_aux=True)(*arrays)

    wanted = all_of_it()
    used = []
    monkeypatch.setattr(fused_logits, "is_used", lambda *given: used.append(given) or True)
    found = all_of_it()
    assert used == [(256, 192, jnp.bfloat16)] * 2
    chex.assert_trees_all_equal_shapes(found, wanted)
    largest = jax.tree.map(lambda x: np.abs(x).max() or 1, wanted)
    scaled = (jax.tree.map(np.divide, x, largest) for x in (found, wanted))
    chex.assert_trees_all_close(*scaled, rtol=1e-7, atol=3e-3)
    np.testing.assert_allclose(found[0][1][0], wanted[0][1][0], rtol=1e-5)


def test_which_blocks_are_for_the_kernels(monkeypatch):
    wide = jnp.dtype("bfloat16")
    for platform, used in {"cpu": False, "tpu": False, "gpu": True}.items():
        monkeypatch.setattr(devices, "platform", lambda platform=platform: platform)
        assert fused_logits.is_used(16_384, 768, wide) == used
    assert not fused_logits.is_used(16_384, 768, jnp.dtype("float32"))
    assert not fused_logits.is_used(400, 768, wide)
    assert not fused_logits.is_used(16_384, 100, wide)
