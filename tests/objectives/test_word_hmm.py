"""The word HMM: losses against a plain implementation, and the arrays that they depend on."""

import dataclasses
from types import SimpleNamespace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import compiled
from random_rows import CORPUS, rows_of

from xlj.alignment_math import hmm
from xlj.config.objectives.word_hmm import WordHMM
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder, word_hmm_head
from xlj.objectives import word_hmm
from xlj.objectives.flops import of_layers
from xlj.objectives.segments import whole_examples

OPTIONS = WordHMM(layer=1, weight=2.0, normaliser_weight=0.3, agreement=0.0)


@pytest.fixture
def result(full_model):
    built = compiled(word_hmm.objective("word_hmm", OPTIONS, full_model, CORPUS))
    rows = rows_of("bitext")
    rngs = jax.random.split(jax.random.key(5), len(rows.tokens))
    init = jax.jit(encoder.init, static_argnums=(1, 2, 3))
    params = init(jax.random.key(1), full_model, CORPUS.vocabulary_size, 2)
    params = params | {name: init(jax.random.key(2)) for name, init in built.parts.items()}
    head = params[word_hmm.HEAD]
    rng = np.random.default_rng(9)
    noisy = jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape).astype(np.float32), head)
    return built, params | {word_hmm.HEAD: noisy}, built.corrupt(rows, rngs)


def plain(params, model, inputs, row, agreement=0.0):
    """Returns for a row: the likelihood of both directions by the forward algorithm; the function
    whose gradient is used, with the share of agreement; and the sum of squared normalisers."""
    head, table = params[word_hmm.HEAD], params["embeddings"]["word"]
    sides = inputs.first, inputs.second
    hidden = [
        encoder.apply(params, model, whole_examples(model, *side), layers=OPTIONS.layer)[row]
        for side in sides
    ]
    words = [word_hmm.words_of(side.tokens)[row] for side in sides]
    total = taught = squares = 0.0
    emissions, expected = [], []
    for source, target in ((0, 1), (1, 0)):
        noise = inputs.noise[row, target]
        others, real = table[noise] @ head["key"]["kernel"], noise != PAD
        keys = table[sides[target].tokens[row]] @ head["key"]["kernel"]

        def emitted(queries, keys=keys, others=others, real=real):
            powers = jnp.where(real, jnp.exp(queries @ others.T), 0)
            mean = jnp.log(powers.sum(-1, keepdims=True) / real.sum())
            scores = jnp.exp(queries @ keys.T)
            share = scores / (scores + word_hmm_head.NOISE * jnp.exp(mean))
            return jnp.log((word_hmm_head.NOISE + 1) * share), mean[:, 0]

        ratios, means = emitted(hidden[source] @ head["query"]["kernel"])
        (null,), (mean,) = emitted(head["null_bias"][None])
        emission = hmm.Emission(ratios, null)

        def likelihood(emission, jumps, source=words[source], target=words[target]):
            return hmm.log_likelihood(emission, jumps, source, target)

        emissions.append(emission)
        expected.append(jax.grad(likelihood)(emission, head["jump_bias"]).source)
        total += likelihood(emission, head["jump_bias"])
        taught += (1 - agreement) * likelihood(emission, jax.lax.stop_gradient(head["jump_bias"]))
        taught += likelihood(jax.lax.stop_gradient(emission), head["jump_bias"])
        squares += jnp.where(words[source] > 0, means**2, 0).sum() + mean**2
    both = jax.lax.stop_gradient(expected[0] * expected[1].T)
    for emission, agreed, target in zip(emissions, (both, both.T), words[::-1], strict=True):
        there = (target > 0) * emission.null
        each = (agreed * emission.source).sum() + (there * (1 - agreed.sum(0))).sum()
        taught += agreement * each
    return total, taught, squares


@pytest.mark.parametrize("agreement", [pytest.param(0.0, marks=pytest.mark.slow), 0.4])
def test_whole_losses_and_gradients(result, full_model, agreement):
    _, params, inputs = result
    options = dataclasses.replace(OPTIONS, agreement=agreement)
    built = compiled(word_hmm.objective("word_hmm", options, full_model, CORPUS))
    found = built.loss(params, {}, inputs, None)
    losses = {name: built.losses[name].weight * sums.sum.sum() for name, sums in found.items()}

    @jax.jit
    def wanted(params, row):
        likelihood, taught, squares = plain(params, full_model, inputs, row, agreement)
        return -2.0 * likelihood, -2.0 * taught, 2.0 * 0.3 * squares

    rows = range(len(inputs.noise))
    first, _, second = np.sum([wanted(params, row) for row in rows], axis=0)
    np.testing.assert_allclose(losses["word_hmm"], first, rtol=1e-5)
    np.testing.assert_allclose(losses["word_hmm_normaliser"], second, rtol=1e-5)

    def ours(params):
        found = built.loss(params, {}, inputs, None)
        return sum(built.losses[name].weight * sums.sum.sum() for name, sums in found.items())

    of_row = jax.jit(jax.grad(lambda params, row: sum(wanted(params, row)[1:])))
    found = jax.jit(jax.grad(ours))(params)
    every = [jax.device_get(of_row(params, row)) for row in rows]
    gradient = jax.tree.map(lambda *each: sum(each), *every)
    largest = max(abs(np.asarray(leaf)).max() for leaf in jax.tree.leaves(gradient))
    chex.assert_trees_all_close(found, gradient, rtol=2e-4, atol=2e-5 * largest)
    assert all(np.asarray(leaf).any() for leaf in jax.tree.leaves(found[word_hmm.HEAD]))


def test_losses_of_rows_are_independent(result):
    built, params, inputs = result
    every = built.loss(params, {}, inputs, None)
    counts = built.count(inputs)
    tokens = np.concatenate([inputs.first.tokens, inputs.second.tokens], axis=1)
    words = ~np.isin(tokens, [BOS, EOS, PAD])
    np.testing.assert_array_equal(counts["word_hmm"], words.sum(1))
    part = jax.tree.map(lambda x: x[1:3], inputs)
    for name, sums in built.loss(params, {}, part, None).items():
        np.testing.assert_array_equal(every[name].count, counts[name])
        np.testing.assert_allclose(sums.sum, every[name].sum[1:3], rtol=2e-5)


def test_noise_is_of_the_whole_batch_and_of_its_side(result):
    _, _, inputs = result
    assert (np.asarray(inputs.noise) == np.asarray(inputs.noise[:1])).all()
    for side, tokens in enumerate((inputs.first.tokens, inputs.second.tokens)):
        there = np.sort(np.asarray(tokens)[np.asarray(word_hmm.words_of(tokens)) > 0])
        noise = np.asarray(inputs.noise[0, side])
        np.testing.assert_array_equal(np.sort(noise[noise != PAD]), there)


def test_more_tokens_than_noise_are_drawn_at_random(monkeypatch, full_model):
    monkeypatch.setattr(word_hmm_head, "NOISE", 8)
    built = word_hmm.objective("word_hmm", OPTIONS, full_model, CORPUS)
    rows = rows_of("bitext")
    drawn = [
        built.corrupt(rows, jax.random.split(jax.random.key(seed), len(rows.tokens))).noise[0]
        for seed in range(3)
    ]
    assert all((noise != PAD).all() and noise.shape == (2, 8) for noise in drawn)
    assert len({tuple(np.asarray(noise).ravel()) for noise in drawn}) == 3


def test_accuracy_is_agreement(result, full_model):
    """Both tokens count of links that are most likely for their source and their target."""
    built, params, inputs = result
    head = jax.tree.map(jnp.zeros_like, params[word_hmm.HEAD])
    head["query"] = head["key"] = {"kernel": 9.0 * jnp.eye(full_model.hidden)}
    table = params["embeddings"]["word"]
    params = params | {word_hmm.HEAD: head, "embeddings": {**params["embeddings"], "word": table}}
    same = inputs._replace(second=inputs.first, noise=inputs.noise[:, [0, 0]])
    built = compiled(word_hmm.objective("word_hmm", WordHMM(layer=0), full_model, CORPUS))
    sums = built.loss(params, {}, same, None)["word_hmm"]
    assert float(sums.correct.sum()) > 0.8 * float(sums.count.sum())
    other = built.loss(params, {}, inputs, None)["word_hmm"]
    assert float(other.correct.sum()) < 0.7 * float(other.count.sum())


def test_links_agree_that_are_the_likeliest_of_both_their_tokens():
    """Posteriors have ties; compared with a loop. Tokens without links do not count."""
    rng = np.random.default_rng(0)
    forth, back = rng.integers(0, 4, (2, 3, 5, 6)) / 4
    both = forth * back
    wanted = [
        sum(
            both[row, i, j] > 0
            and forth[row, i, j] == forth[row, :, j].max()
            and back[row, i, j] == back[row, i].max()
            for i in range(5)
            for j in range(6)
        )
        for row in range(3)
    ]
    directions = (
        SimpleNamespace(posteriors=SimpleNamespace(emission=SimpleNamespace(source=source)))
        for source in (forth, back.transpose(0, 2, 1))
    )
    assert word_hmm._count_agreed(jnp.asarray(both), *directions).tolist() == wanted
    assert 0 < min(wanted) and max(wanted) < (both > 0).sum((1, 2)).min()


def test_operations_are_of_two_sides_their_products_and_their_moves(result, full_model):
    products = 2 * 4 * 24 * full_model.hidden * (24 + word_hmm_head.NOISE + 2 * full_model.hidden)
    wanted = 6 * of_layers(full_model, OPTIONS.layer, 4, 24).total
    wanted += 2 * (3 * products + 3 * 2 * 4 * 24**3)
    assert result[0].flops(4, 48).total == wanted
