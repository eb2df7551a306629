"""The method hmm multiplies the posteriors of both directions; the checkpoint needs its head."""

import jax
import numpy as np
import pytest

from xlj.alignment_math import hmm
from xlj.api.encoder import Encoder
from xlj.config import ConfigError
from xlj.config.choices import METHODS, AlignmentOptions
from xlj.models import encoder
from xlj.objectives.word_hmm import head as word_hmm_head
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.methods import HMM_THRESHOLD
from xlj.word_alignment.sentence_pairs import Pair

HMM = AlignmentOptions("hmm", "apart")


@pytest.fixture(scope="module")
def trained(copying_encoder):
    """The encoder with a head for the method hmm, whose initial parameters are changed by noise."""
    head = word_hmm_head.init(jax.random.key(3), copying_encoder.model, hmm.LONGEST_JUMP)
    rng = np.random.default_rng(0)

    def add_noise(leaf):
        return 0.6 * np.asarray(leaf) + 0.1 * rng.normal(size=leaf.shape).astype(np.float32)

    noisy = jax.tree.map(add_noise, head)
    params = {**copying_encoder.params, "word_hmm_head": noisy}
    return copying_encoder._replace(params=params)


def pairs_of(vocabulary):
    words = [piece[1:] for piece in vocabulary.pieces if piece[0] == "▁" and piece[1:].isalpha()]
    return [
        Pair("a", words[:5], words[4::-1]),
        Pair("b", words[3:6], words[1:9]),
        Pair("c", words[:1], []),
        Pair("d", words[2:14], words[8:12]),
    ]


apply = jax.jit(encoder.apply, static_argnames=("model", "layers"))
posteriors = jax.jit(hmm.posteriors)


def compute_alone(pretrained, pair, layer):
    """Computes the method hmm for one pair.

    Returns the product of the posteriors of both directions, by word, and the log likelihood of
    both directions, per piece.
    """
    vocabulary, model = pretrained.vocabulary, pretrained.model
    params = jax.device_get(pretrained.params)
    head, table = params["word_hmm_head"], params["embeddings"]["word"]
    sides = []
    for words in (pair.source, pair.target):
        pieces = vocabulary.encode_batch(words)
        ids = np.concatenate([[1], *pieces, [2]]).astype(np.int32)[None]
        places = np.arange(ids.shape[1], dtype=np.int32)[None]
        ones = np.ones_like(ids)
        inputs = encoder.Inputs(ids, places, ones, ones, sides=0 * ones)
        hidden = apply(params, model, inputs, layers=layer)[0, 1:-1]
        words = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
        sides.append((ids[0, 1:-1], np.asarray(hidden), words))

    def share(score):
        return np.log(1025 * np.exp(score) / (np.exp(score) + 1024))

    def direction(source, target):
        keys = table[target[0]] @ head["key"]["kernel"]
        scores = source[1] @ head["query"]["kernel"] @ keys.T
        emission = hmm.Emission(share(scores), share(keys @ head["null_bias"]))
        ones = [np.ones(len(side[0]), np.int32) for side in (source, target)]
        result = posteriors(emission, head["jump_bias"], *ones)
        return np.asarray(result.emission.source), float(result.log_likelihood)

    (forward, forward_likelihood), (backward, backward_likelihood) = (
        direction(*sides),
        direction(*sides[::-1]),
    )
    product = forward * backward.T
    matrix = np.zeros((len(pair.source), len(pair.target)), np.float32)
    np.maximum.at(matrix, np.ix_(sides[0][2], sides[1][2]), product)
    return matrix, (forward_likelihood + backward_likelihood) / sum(len(side[2]) for side in sides)


@pytest.mark.parametrize("layer", [0, 2])
def test_links_and_confidences_equal_a_computation_without_batches(trained, layer):
    pairs = pairs_of(trained.vocabulary)
    scored = list(Aligner(trained, HMM, [layer]).scored(pairs))
    soft = list(Aligner(trained, HMM, [layer]).soft(pairs))
    linked = unsure = 0
    for pair, ((aligned,), (matrix,)) in zip(pairs, zip(scored, soft, strict=True), strict=True):
        if not pair.target:
            assert not len(aligned.links)
            continue
        expected, _ = compute_alone(trained, pair, layer)
        np.testing.assert_allclose(matrix, expected, atol=2e-5)
        links = np.argwhere(expected >= HMM_THRESHOLD)
        np.testing.assert_array_equal(aligned.links, links)
        np.testing.assert_allclose(aligned.confidences, expected[tuple(links.T)], atol=2e-5)
        linked += len(links)
        unsure += ((expected > HMM_THRESHOLD) & (expected < 0.4)).sum()
    assert linked > 4 and unsure > 1


@pytest.mark.parametrize("layer", [0, 2])
def test_likelihoods_equal_a_computation_without_batches(trained, layer):
    pairs = pairs_of(trained.vocabulary)
    expected = [compute_alone(trained, p, layer)[1] if p.target else np.nan for p in pairs]
    actual = list(Aligner(trained, HMM, [layer]).likelihoods(pairs))
    np.testing.assert_allclose(actual, expected, atol=2e-5)
    assert np.nanstd(actual) > 0.05
    texts = [(" ".join(p.source), " ".join(p.target)) for p in pairs]
    in_python = Encoder(trained).score(texts, "likelihood", layer)
    np.testing.assert_allclose(in_python, expected, atol=2e-5)


def test_several_layers_at_once_equal_each_layer_alone(trained):
    pairs = pairs_of(trained.vocabulary)
    at_once = list(Aligner(trained, HMM, [0, 2]).soft(pairs))
    for k, layer in enumerate((0, 2)):
        alone = Aligner(trained, HMM, [layer]).soft(pairs)
        for of_layers, (matrix,) in zip(at_once, alone, strict=True):
            np.testing.assert_allclose(of_layers[k], matrix, atol=2e-5)


def test_a_model_without_the_head_is_refused(copying_encoder):
    with pytest.raises(ConfigError, match=r"hmm needs the head that objectives.word_hmm trains"):
        Aligner(copying_encoder, HMM)
    assert Encoder(copying_encoder).methods == METHODS


def test_the_alignment_options_of_the_config_are_the_default(trained):
    chosen = AlignmentOptions("hmm", "apart", 0, 0.0)
    model = Encoder(trained._replace(alignment=chosen))
    assert model.alignment_options() == model.alignment_options(method=None) == chosen
    other = model.alignment_options(method="argmax", encode=None, layer=1, prior=2.0)
    assert other == AlignmentOptions("argmax", "apart", 1, 2.0)
    assert Encoder(trained).alignment_options() == AlignmentOptions("argmax", "apart", 2)
    assert model.methods == (*METHODS, "hmm")
    pairs = [(pair.source, pair.target) for pair in pairs_of(trained.vocabulary)]
    expected = Encoder(trained).align(pairs, layer=0, method="hmm", together=False)
    assert model.align(pairs) == expected
    assert any(expected)
