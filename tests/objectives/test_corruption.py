"""Masking: the number, choice and replacement of tokens, which depend only on the key of a row."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import registered
from xlj.objectives.corruption import at_positions, mask_tokens, max_predictions
from xlj.objectives.masking.options import Masking, MaskingOptions
from xlj.objectives.mlm.options import MultilingualMLM

SIZE = 300
MASK = SIZE - 1
MASK_TOKENS = jax.jit(mask_tokens, static_argnames=("options", "vocabulary_size"))


def rows(count=512, length=64, seed=0):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(4, MASK, (count, length))
    tokens[:, 0], tokens[:, 20], tokens[:, 50] = 0, 2, 2
    tokens[:, 51:] = 1
    tokens[:, 7] = 3
    return jnp.asarray(tokens, jnp.int32)


def masked(tokens, keys=None, rate=0.15):
    keys = jax.random.split(jax.random.key(1), len(tokens)) if keys is None else keys
    languages = jnp.zeros((len(tokens), 2), jnp.int32)
    options = MultilingualMLM(masking=Masking(rate=rate))
    return MASK_TOKENS(
        {"tokens": tokens, "languages": languages}, keys, options=options, vocabulary_size=SIZE
    )


def test_pair_rate_is_the_rate_of_objectives_that_read_sentence_pairs():
    options = {n: o for n, o in registered().items() if isinstance(o, MaskingOptions)}
    reads_pairs = {"tlm", "camlm", "trtd", "dwa", "xlco"}
    assert options.keys() == {"mmlm", "btmlm", "mrtd"} | reads_pairs
    for masking, of_pairs in ((Masking(0.2, 0.5), 0.5), (Masking(0.2), 0.2)):
        actual = {n: dataclasses.replace(o, masking=masking).mask_rate for n, o in options.items()}
        assert actual == {name: of_pairs if name in reads_pairs else 0.2 for name in options}


def test_shares_of_selected_tokens_and_of_their_replacements():
    tokens = rows(4096)
    result = masked(tokens)
    text = 51 - 4  # without three special tokens and <unk>
    counts = result.weights.sum(1)
    assert set(np.unique(counts)) == {int(0.15 * text), int(0.15 * text) + 1}
    assert counts.mean() == pytest.approx(0.15 * text, rel=0.01)
    chosen = result.weights == 1
    new = jnp.take_along_axis(result.tokens, result.positions, 1)
    became_mask = (new == MASK)[chosen].mean()
    unchanged = (new == result.labels)[chosen].mean()
    assert became_mask == pytest.approx(0.8, abs=0.01)
    assert unchanged == pytest.approx(0.1 + 0.1 / (SIZE - 5), abs=0.01)


def test_positions_are_uniform_and_distinct():
    result = masked(rows(4096))
    hits = np.zeros(64)
    for positions, weights in zip(result.positions, result.weights, strict=True):
        taken = np.asarray(positions)[np.asarray(weights) == 1]
        assert len(set(taken)) == len(taken)
        hits[taken] += 1
    special = [0, 7, 20, 50, *range(51, 64)]
    assert (hits[special] == 0).all()
    text = np.delete(hits, special)
    assert text.min() > 0.85 * text.mean() and text.max() < 1.15 * text.mean()


def test_special_tokens_are_never_selected_or_drawn_as_replacements():
    tokens = rows()
    result = masked(tokens, rate=0.9)
    assert (result.labels[result.weights == 1] >= 4).all()
    changed = result.tokens != tokens
    assert (tokens[changed] >= 4).all()
    assert (result.tokens[changed] >= 4).all()
    assert changed.any(1).all()


def test_labels_are_the_originals_and_other_tokens_are_unchanged():
    tokens = rows()
    result = masked(tokens)
    assert (jnp.take_along_axis(tokens, result.positions, 1) == result.labels).all()
    unselected = np.ones(tokens.shape, bool)
    for row, (positions, weights) in enumerate(zip(result.positions, result.weights, strict=True)):
        unselected[row, np.asarray(positions)[np.asarray(weights) == 1]] = False
    assert (np.asarray(result.tokens == tokens))[unselected].all()
    np.testing.assert_array_equal(result.original(), tokens)
    np.testing.assert_array_equal(result.selected(), ~unselected)


def test_capacity_is_never_exceeded_and_is_reached():
    length = 64
    tokens = jnp.asarray(np.random.default_rng(0).integers(4, MASK, (2000, length)))
    tokens = tokens.at[:, 0].set(0).at[:, -1].set(2)
    for rate in (0.05, 0.15, 0.5):
        result = masked(tokens, rate=rate)
        assert result.positions.shape[1] == max_predictions(length, rate)
        assert result.weights.sum(1).max() == max_predictions(length, rate)


def test_max_predictions():
    actual = [max_predictions(*args) for args in ((22, 0.15), (12, 0.1), (13, 0.1), (34, 0.0))]
    assert actual == [3, 1, 2, 1]


def test_a_share_of_0_is_never_drawn(monkeypatch):
    """This holds even if the uniform draw is exactly 0."""
    monkeypatch.setattr(jax.random, "uniform", lambda rng, shape=(): jnp.zeros(shape))
    tokens, keys = rows(8), jax.random.split(jax.random.key(1), 8)
    batch = {"tokens": tokens, "languages": jnp.zeros((8, 2), jnp.int32)}
    for random_share, is_unchanged in ((0.0, True), (0.5, False)):
        masking = Masking(rate=0.5, mask_share=0.0, random_share=random_share)
        options = MultilingualMLM(masking=masking)
        result = mask_tokens(batch, keys, options, SIZE)
        assert (np.asarray(result.tokens == tokens)).all() == is_unchanged
        assert (result.tokens != MASK).all() and result.weights.sum() > 50


def test_a_row_without_text_selects_nothing():
    tokens = jnp.full((3, 16), 1, jnp.int32).at[:, 0].set(0).at[:, 1].set(2)
    result = masked(tokens)
    assert (result.weights == 0).all() and (result.tokens == tokens).all()


def test_the_masks_of_a_row_depend_only_on_its_key():
    tokens = rows(16)
    keys = jax.random.split(jax.random.key(7), 16)
    whole = masked(tokens, keys)
    part = masked(tokens[5:9], keys[5:9])
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_array_equal(a[5:9], b)


def test_values_are_placed_unchanged_at_their_positions():
    placed = at_positions(jnp.array([[2, 0], [1, 3]]), jnp.array([[0.5, 0.25], [-0.75, 1.5]]), 5)
    assert placed.tolist() == [[0.25, 0, 0.5, 0, 0], [0, -0.75, 0, 1.5, 0]]
    assert placed.dtype == jnp.float32


@pytest.mark.parametrize("seed, number, other", [(59, 10_189, 2), (114, 13_443, 0)])
def test_tokens_are_ordered_by_31_random_bits(seed, number, other):
    """With these keys, two tokens would swap places if 30 or 32 bits were compared."""
    keys = jax.random.split(jax.random.key(seed), 16_384)[number][None]
    bits = jax.random.bits(jax.random.split(keys[0], 4)[1], (64,), jnp.uint32)
    expected, changed = (np.argsort(np.asarray(bits >> n), kind="stable") for n in (1, other))
    tokens = jnp.full((1, 64), 7, jnp.int32)
    actual = np.asarray(masked(tokens, keys, rate=0.9).positions[0])
    np.testing.assert_array_equal(actual, expected[: len(actual)])
    assert (expected != changed)[: len(actual)].any(), (
        "the numbers of bits give the same order: choose another key"
    )
