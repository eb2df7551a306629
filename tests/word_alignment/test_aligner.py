"""The aligner finds the same links in batches as for each pair alone, for any lengths."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.alignment_math import extraction
from xlj.alignment_math.extraction import match
from xlj.alignment_math.sinkhorn import sinkhorn
from xlj.config import ConfigError, Model
from xlj.config.choices import METHODS, AlignmentOptions
from xlj.data.tokenizer.layout import BOS, EOS
from xlj.models import encoder
from xlj.models.segments import segments
from xlj.word_alignment import aligner, methods, pair_batches
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.methods import Side
from xlj.word_alignment.sentence_pairs import Pair

both_ways = pytest.mark.parametrize("together", [True, False])
every_method = pytest.mark.parametrize("method", METHODS)


def options(method, together=True, prior=0.0):
    return AlignmentOptions(method, "together" if together else "apart", prior=prior)


def links_of(array):
    return [tuple(link) for link in array.tolist()]


def words_of_one_piece(vocabulary, count):
    words = [piece[1:] for piece in vocabulary.pieces if piece[0] == "▁" and piece[1:].isalpha()]
    return [word for word in words if len(vocabulary.encode_batch([word])[0]) == 1][:count]


def random_pairs(vocabulary, count, sizes=(0, 1, 2, 5), seed=0):
    random = np.random.default_rng(seed)
    words = words_of_one_piece(vocabulary, 60)
    return [
        Pair(f"file:{k}", *(random.choice(words, size).tolist() for size in lengths))
        for k, lengths in enumerate(random.choice(sizes, (count, 2)))
    ]


@both_ways
@every_method
def test_equal_words_in_another_order_are_linked(copying_encoder, method, together):
    words = words_of_one_piece(copying_encoder.vocabulary, 12)
    random = np.random.default_rng(0)
    orders = [random.permutation(len(words)) for _ in range(5)]
    pairs = [Pair("", words, [words[k] for k in order]) for order in orders]
    aligned = Aligner(copying_encoder, options(method, together), [2]).align(pairs)
    for order, (links,) in zip(orders, aligned, strict=True):
        assert links.dtype == np.int32
        assert links_of(links) == sorted((int(k), j) for j, k in enumerate(order))


apply = jax.jit(encoder.apply, static_argnames=("model", "all_layers"))


@partial(jax.jit, static_argnums=(0, 5))
def align_vectors(method, source, target, source_ids, target_ids, prior):
    encoded = (source, source_ids), (target, target_ids)
    sides = (Side(vectors[None, None], ids[None], ids[None]) for vectors, ids in encoded)
    soft, links, _ = methods.METHODS[method].align({}, Model(), *sides, prior)
    return soft[0, 0], None if links is None else links[0, 0]


def encode_alone(pretrained, pair, together):
    """Encodes a pair without batches or padding.

    Returns the vectors of the pieces of both sentences at layer 2, and the words of these pieces.
    """
    encode = pretrained.vocabulary.encode_batch
    ids = [[encode([word])[0] for word in side] for side in (pair.source, pair.target)]
    words = [np.repeat(np.arange(len(side)), [len(word) for word in side]) for side in ids]
    a, b = (np.concatenate(side) for side in ids)

    def hidden(tokens):
        tokens = np.array([tokens])
        inputs = encoder.Inputs(
            tokens=tokens,
            positions=np.arange(tokens.shape[1])[None],
            query_segment_ids=tokens * 0,
            key_segment_ids=tokens * 0,
        )
        all_layers = apply(pretrained.params, pretrained.model, inputs, all_layers=True)
        return np.asarray(all_layers[2, 0])

    if together:
        vectors = hidden([BOS, *a, EOS, *b, EOS])
        return vectors[1 : 1 + len(a)], vectors[2 + len(a) : -1], words
    return hidden([BOS, *a, EOS])[1:-1], hidden([BOS, *b, EOS])[1:-1], words


def links_by_method(source, target):
    tokens = np.ones(len(source), np.int32), np.ones(len(target), np.int32)
    transport = sinkhorn(source @ target.T, *tokens)
    norms = jnp.linalg.norm(source, axis=1)[:, None] * jnp.linalg.norm(target, axis=1)
    cosine = (1 + source @ target.T / norms) / 2
    return {
        "optimal_transport": extraction.itermax(transport.plan, *tokens),
        "released": extraction.released(transport),
        "argmax": extraction.argmax(cosine, *tokens),
        "itermax": extraction.itermax(cosine, *tokens),
        "match": match(np.asarray(cosine), *tokens),
    }


@pytest.mark.parametrize("together", [True, False])
def test_a_pair_is_encoded_as_in_pretraining(random_encoder, together, monkeypatch):
    """Compares positions and sides too: a model may use them in other ways than as embeddings."""
    inputs_read, original_apply = [], encoder.apply
    monkeypatch.setattr(
        encoder, "apply", lambda *a, **b: (inputs_read.append(a[2]), original_apply(*a, **b))[1]
    )
    monkeypatch.setattr(aligner, "_align", aligner._align.__wrapped__)
    pairs = random_pairs(random_encoder.vocabulary, 6, sizes=(2, 5))
    list(Aligner(random_encoder, options("itermax", together), [1]).align(pairs))
    for inputs in inputs_read:
        layout = segments(inputs.tokens)
        np.testing.assert_array_equal(inputs.sides, layout.side)
        np.testing.assert_array_equal(inputs.positions, layout.position)
        np.testing.assert_array_equal(inputs.key_segment_ids, layout.segment)
    assert inputs_read and any(np.asarray(inputs.sides).any() for inputs in inputs_read) == together


@both_ways
@pytest.mark.slow
def test_links_do_not_depend_on_batches(random_encoder, together, monkeypatch):
    monkeypatch.setattr(pair_batches, "BATCH_TOKENS", 60)
    monkeypatch.setattr(aligner, "_CHUNK", 7)
    pairs = random_pairs(random_encoder.vocabulary, 20)
    pairs.append(Pair("", ["Fensterbank", "one"], ["two", "\u200b", "xylophone"]))
    links_in_batches = {
        method: list(Aligner(random_encoder, options(method, together), [2]).align(pairs))
        for method in METHODS
    }
    assert all(len(links) == len(pairs) for links in links_in_batches.values())
    for k, pair in enumerate(pairs):
        if not pair.source or not pair.target:
            assert all(len(links[k][0]) == 0 for links in links_in_batches.values())
            continue
        source, target, words = encode_alone(random_encoder, pair, together)
        for method, links in links_by_method(source, target).items():
            ends = np.argwhere(np.asarray(links))
            expected = sorted({(int(words[0][i]), int(words[1][j])) for i, j in ends})
            assert links_of(links_in_batches[method][k][0]) == expected, method


def test_several_layers_at_once_equal_each_layer_alone(random_encoder):
    pairs = random_pairs(random_encoder.vocabulary, 30)
    layers = [0, 1, 3]
    at_once = list(Aligner(random_encoder, options("optimal_transport"), layers).align(pairs))
    for k, layer in enumerate(layers):
        alone = Aligner(random_encoder, options("optimal_transport"), [layer]).align(pairs)
        for layer_links, (links,) in zip(at_once, alone, strict=True):
            np.testing.assert_array_equal(layer_links[k], links)


@both_ways
def test_a_sentence_of_two_thousand_words_is_aligned_in_windows(copying_encoder, together):
    words = np.array(words_of_one_piece(copying_encoder.vocabulary, 30))
    long = np.random.default_rng(0).permutation(np.repeat(words, 70)).tolist()[:2000]
    special = ["Fensterbank", "xylophone"]  # once per side, at opposite ends
    pairs = [
        Pair("", ["one"], ["one"]),
        Pair("", [special[0], *long, special[1]], [special[1], *long, special[0]]),
        Pair("", long[:3], long[:3]),
    ]
    aligner = Aligner(copying_encoder, options("itermax", together), [2])
    pair_links = [links_of(links) for (links,) in aligner.align(pairs)]
    assert aligner.windowed == 1
    assert pair_links[0] == [(0, 0)]
    assert (0, 2001) in pair_links[1] and (2001, 0) in pair_links[1]


def test_empty_sides_have_no_links(random_encoder):
    pairs = [
        Pair("", [], ["one"]),
        Pair("", ["one"], []),
        Pair("", [], []),
        Pair("", ["\u200b"], ["one"]),
        Pair("", ["one"], ["one"]),
    ]
    aligner = Aligner(random_encoder, options("optimal_transport"), [1])
    shapes = [links.shape for (links,) in aligner.align(pairs)]
    assert shapes == [(0, 2)] * 4 + [(1, 2)]
    assert list(aligner.align([])) == []


def test_an_error_about_too_many_pieces_names_the_line(random_encoder, monkeypatch):
    monkeypatch.setattr(aligner, "MAX_PIECES", 5)
    word = words_of_one_piece(random_encoder.vocabulary, 1)
    pairs = [Pair("mine.tsv:1", word, word), Pair("mine.tsv:2", word * 6, word)]
    with pytest.raises(ConfigError, match=r"mine\.tsv:2: a sentence has 6 pieces, but at most 5"):
        list(Aligner(random_encoder, options("argmax"), [1]).align(pairs))


def test_the_middle_layer_is_at_two_thirds_of_the_depth():
    assert [encoder.middle_layer(n) for n in (1, 2, 3, 6, 12, 24)] == [1, 1, 2, 4, 8, 16]


@every_method
def test_the_value_of_two_words_is_the_maximum_over_their_pieces(random_encoder, method):
    pairs = random_pairs(random_encoder.vocabulary, 4, sizes=(0, 2, 4))
    pairs.append(Pair("", ["xylophone", "one"], ["two", "\u200b", "xylophone"]))
    aligner = Aligner(random_encoder, options(method, prior=0.8), [2])
    results = aligner.align(pairs), aligner.scored(pairs), aligner.soft(pairs)
    for pair, (links,), ((scored_links, confidences, _),), (soft,) in zip(
        pairs, *results, strict=True
    ):
        assert soft.shape == (len(pair.source), len(pair.target)) and soft.dtype == np.float32
        np.testing.assert_array_equal(links, scored_links)
        if not pair.source or not pair.target:
            assert not soft.any() and not confidences.size
            continue
        source, target, words = encode_alone(random_encoder, pair, together=True)
        ids = np.ones(len(source), np.int32), np.ones(len(target), np.int32)
        piece_values, piece_links = align_vectors(method, source, target, *ids, 0.8)
        piece_values = np.asarray(piece_values)
        piece_links = match(piece_values, *ids) if method == "match" else np.asarray(piece_links)

        def maximum_over_pieces(values, words=words, shape=soft.shape):
            table = np.zeros(shape, np.float32)
            np.maximum.at(table, tuple(np.meshgrid(*words, indexing="ij")), values)
            return table

        np.testing.assert_allclose(soft, maximum_over_pieces(piece_values), rtol=1e-3, atol=1e-5)
        expected = maximum_over_pieces(piece_values * piece_links)
        np.testing.assert_array_equal(np.argwhere(expected), links)
        np.testing.assert_allclose(confidences, expected[expected > 0], rtol=1e-3)


@every_method
def test_a_threshold_removes_links_of_low_confidence(random_encoder, method):
    pairs = random_pairs(random_encoder.vocabulary, 12, sizes=(2, 5))
    scored = [result for (result,) in Aligner(random_encoder, options(method), [2]).scored(pairs)]
    threshold = float(np.median(np.concatenate([result.confidences for result in scored])))
    filtering_aligner = Aligner(random_encoder, options(method), [2], threshold)
    for unfiltered, (filtered,), (links,) in zip(
        scored, filtering_aligner.scored(pairs), filtering_aligner.align(pairs), strict=True
    ):
        is_confident = unfiltered.confidences >= np.float32(threshold)
        np.testing.assert_array_equal(links, unfiltered.links[is_confident])
        np.testing.assert_array_equal(filtered.confidences, unfiltered.confidences[is_confident])
