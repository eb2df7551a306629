"""The word HMM: losses and gradients against a plain implementation, noise, and accuracy."""

from types import SimpleNamespace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import compiled
from constants import with_constants
from random_rows import CORPUS, rows_of

from xlj.alignment_math import hmm
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder
from xlj.models.segments import whole_examples
from xlj.objectives.word_hmm import head as word_hmm_head
from xlj.objectives.word_hmm import loss as word_hmm
from xlj.objectives.word_hmm.options import WordHMM

OPTIONS = with_constants(WordHMM(layer=1, weight=2.0), normaliser_weight=0.3, agreement=0.0)


@pytest.fixture
def result(full_model):
    objective = compiled(word_hmm.objective("word_hmm", OPTIONS, full_model, CORPUS))
    rows = rows_of("bitext")
    rngs = jax.random.split(jax.random.key(5), len(rows["languages"]))
    init = jax.jit(encoder.init, static_argnums=(1, 2, 3))
    params = init(jax.random.key(1), full_model, CORPUS.vocabulary_size, 2)
    params = params | {name: init(jax.random.key(2)) for name, init in objective.parts.items()}
    head = params[word_hmm.HEAD]
    rng = np.random.default_rng(9)
    noisy = jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape).astype(np.float32), head)
    return objective, params | {word_hmm.HEAD: noisy}, objective.corrupt(rows, rngs)


def plain(params, model, inputs, row, agreement=0.0):
    """Returns three numbers for a row: the log-likelihood of both directions by the forward
    algorithm; the function whose gradient trains the model, with the share of agreement; and the
    sum of squared normalisers."""
    head, table = params[word_hmm.HEAD], params["embeddings"]["word"]
    sides = inputs.first, inputs.second
    hidden = [
        encoder.apply(params, model, whole_examples(model, **side), layers=OPTIONS.layer)[row]
        for side in sides
    ]
    words = [word_hmm.words_of(side["tokens"])[row] for side in sides]
    total = trained = squares = 0.0
    emissions, posteriors = [], []
    for source, target in ((0, 1), (1, 0)):
        noise = inputs.noise[row, target]
        others, real = table[noise] @ head["key"]["kernel"], noise != PAD
        keys = table[sides[target]["tokens"][row]] @ head["key"]["kernel"]

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
        posteriors.append(jax.grad(likelihood)(emission, head["jump_bias"]).source)
        total += likelihood(emission, head["jump_bias"])
        trained += (1 - agreement) * likelihood(emission, jax.lax.stop_gradient(head["jump_bias"]))
        trained += likelihood(jax.lax.stop_gradient(emission), head["jump_bias"])
        squares += jnp.where(words[source] > 0, means**2, 0).sum() + mean**2
    agreed_links = jax.lax.stop_gradient(posteriors[0] * posteriors[1].T)
    for emission, agreed, target in zip(
        emissions, (agreed_links, agreed_links.T), words[::-1], strict=True
    ):
        null_of_targets = (target > 0) * emission.null
        each = (agreed * emission.source).sum() + (null_of_targets * (1 - agreed.sum(0))).sum()
        trained += agreement * each
    return total, trained, squares


@pytest.mark.parametrize("agreement", [pytest.param(0.0, marks=pytest.mark.slow), 0.4])
def test_losses_and_gradients_equal_a_plain_implementation(result, full_model, agreement):
    _, params, inputs = result
    options = with_constants(OPTIONS, agreement=agreement)
    objective = compiled(word_hmm.objective("word_hmm", options, full_model, CORPUS))
    actual = objective.loss(params, {}, inputs, None)
    losses = {name: objective.losses[name].weight * sums.sum.sum() for name, sums in actual.items()}

    @jax.jit
    def plain_losses(params, row):
        likelihood, trained, squares = plain(params, full_model, inputs, row, agreement)
        return -2.0 * likelihood, -2.0 * trained, 2.0 * 0.3 * squares

    rows = range(len(inputs.noise))
    expected_loss, _, expected_normaliser = np.sum(
        [plain_losses(params, row) for row in rows], axis=0
    )
    np.testing.assert_allclose(losses["word_hmm"], expected_loss, rtol=1e-5)
    np.testing.assert_allclose(losses["word_hmm_normaliser"], expected_normaliser, rtol=1e-5)

    def total(params):
        actual = objective.loss(params, {}, inputs, None)
        return sum(objective.losses[name].weight * sums.sum.sum() for name, sums in actual.items())

    gradient_of_row = jax.jit(jax.grad(lambda params, row: sum(plain_losses(params, row)[1:])))
    actual = jax.jit(jax.grad(total))(params)
    gradients_of_rows = [jax.device_get(gradient_of_row(params, row)) for row in rows]
    expected_gradient = jax.tree.map(lambda *each: sum(each), *gradients_of_rows)
    largest = max(abs(np.asarray(leaf)).max() for leaf in jax.tree.leaves(expected_gradient))
    chex.assert_trees_all_close(actual, expected_gradient, rtol=2e-4, atol=2e-5 * largest)
    assert all(np.asarray(leaf).any() for leaf in jax.tree.leaves(actual[word_hmm.HEAD]))


def test_losses_of_rows_are_independent_of_other_rows(result):
    objective, params, inputs = result
    whole = objective.loss(params, {}, inputs, None)
    counts = objective.count(inputs)
    tokens = np.concatenate([inputs.first["tokens"], inputs.second["tokens"]], axis=1)
    words = ~np.isin(tokens, [BOS, EOS, PAD])
    np.testing.assert_array_equal(counts["word_hmm"], words.sum(1))
    part = jax.tree.map(lambda x: x[1:3], inputs)
    for name, sums in objective.loss(params, {}, part, None).items():
        np.testing.assert_array_equal(whole[name].count, counts[name])
        np.testing.assert_allclose(sums.sum, whole[name].sum[1:3], rtol=2e-5)


def test_noise_contains_all_tokens_of_a_side_of_the_batch(result):
    _, _, inputs = result
    assert (np.asarray(inputs.noise) == np.asarray(inputs.noise[:1])).all()
    for side, tokens in enumerate((inputs.first["tokens"], inputs.second["tokens"])):
        words = np.sort(np.asarray(tokens)[np.asarray(word_hmm.words_of(tokens)) > 0])
        noise = np.asarray(inputs.noise[0, side])
        np.testing.assert_array_equal(np.sort(noise[noise != PAD]), words)


def test_noise_is_drawn_at_random_if_the_batch_has_more_tokens(monkeypatch, full_model):
    monkeypatch.setattr(word_hmm_head, "NOISE", 8)
    objective = word_hmm.objective("word_hmm", OPTIONS, full_model, CORPUS)
    rows = rows_of("bitext")
    noises = [
        objective.corrupt(
            rows, jax.random.split(jax.random.key(seed), len(rows["languages"]))
        ).noise[0]
        for seed in range(3)
    ]
    assert all((noise != PAD).all() and noise.shape == (2, 8) for noise in noises)
    assert len({tuple(np.asarray(noise).ravel()) for noise in noises}) == 3


def test_accuracy_is_the_agreement_of_both_directions(result, full_model):
    """A link counts two correct tokens if it is the most likely link of its source and its
    target."""
    objective, params, inputs = result
    head = jax.tree.map(jnp.zeros_like, params[word_hmm.HEAD])
    head["query"] = head["key"] = {"kernel": 9.0 * jnp.eye(full_model.hidden)}
    table = params["embeddings"]["word"]
    params = params | {word_hmm.HEAD: head, "embeddings": {**params["embeddings"], "word": table}}
    same = inputs._replace(second=inputs.first, noise=inputs.noise[:, [0, 0]])
    objective = compiled(word_hmm.objective("word_hmm", WordHMM(layer=0), full_model, CORPUS))
    sums = objective.loss(params, {}, same, None)["word_hmm"]
    assert float(sums.correct.sum()) > 0.8 * float(sums.count.sum())
    other = objective.loss(params, {}, inputs, None)["word_hmm"]
    assert float(other.correct.sum()) < 0.7 * float(other.count.sum())


def test_links_agree_if_they_are_the_most_likely_for_both_of_their_tokens():
    """Compares with a loop. The posteriors have ties, and tokens without links do not count."""
    rng = np.random.default_rng(0)
    forward, backward = rng.integers(0, 4, (2, 3, 5, 6)) / 4
    both = forward * backward
    expected = [
        sum(
            both[row, i, j] > 0
            and forward[row, i, j] == forward[row, :, j].max()
            and backward[row, i, j] == backward[row, i].max()
            for i in range(5)
            for j in range(6)
        )
        for row in range(3)
    ]
    directions = (
        SimpleNamespace(posteriors=SimpleNamespace(emission=SimpleNamespace(source=source)))
        for source in (forward, backward.transpose(0, 2, 1))
    )
    assert word_hmm._count_agreed(jnp.asarray(both), *directions).tolist() == expected
    assert 0 < min(expected) and max(expected) < (both > 0).sum((1, 2)).min()
