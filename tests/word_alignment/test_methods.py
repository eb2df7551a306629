"""Methods of alignment equal their plain versions, and users can add their own methods.

Also batches of pairs encode every piece once, in few shapes, for sentences of any length.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import alignment as plain

from xlj.api.encoder import Encoder
from xlj.config import ConfigError, Model, choices
from xlj.config.choices import AlignmentOptions
from xlj.word_alignment import methods
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.methods import Alignment, Method, Side
from xlj.word_alignment.sentence_pairs import Pair

METHODS = choices.METHODS


def align(method, source, target, source_ids, target_ids, prior=0.0):
    """Aligns float [pairs, m, hidden] and int32 [pairs, m] at one layer, by a method that does not
    read tokens or parameters."""
    sides = (Side(v[None], i, i) for v, i in ((source, source_ids), (target, target_ids)))
    soft, links, _ = methods.METHODS[method].align({}, Model(), *sides, prior)
    return Alignment(soft[0], None if links is None else links[0])


def links_of(array):
    return set(map(tuple, np.argwhere(np.asarray(array)).tolist()))


def vectors(m, n, seed):
    random = np.random.default_rng(seed)
    return random.normal(size=(m, 6)).astype("f"), random.normal(size=(n, 6)).astype("f")


@pytest.mark.parametrize("strength", [0.0, 1.5])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_equals_its_plain_version_with_and_without_the_prior(method, strength):
    align_batch = jax.jit(align, static_argnums=(0, 5))
    changed = 0
    for seed in range(40):
        source, target = vectors(5, 6, seed)
        inputs = source[None], target[None], np.ones((1, 5), "i"), np.ones((1, 6), "i")
        soft, links, _ = align_batch(method, *inputs, strength)
        soft, links = soft[0], None if links is None else links[0]
        prior = plain.diagonal(5, 6, strength)
        unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (source, target)]
        if method in ("optimal_transport", "released"):
            plan, by_rows, by_columns = plain.sinkhorn_log(source @ target.T * prior, 2)
            expected = plan if method == "optimal_transport" else np.minimum(by_rows, by_columns)
        else:
            expected = (unit[0] @ unit[1].T + 1) / 2 * prior
        np.testing.assert_allclose(soft, expected, rtol=1e-4, atol=1e-6)
        if method == "match":
            assert links is None
            continue
        if method == "released":
            expected_links = plain.released(list(by_rows), list(by_columns))
        else:
            rule = plain.argmax if method == "argmax" else plain.itermax
            expected_links = rule(list(np.asarray(soft)))
        assert links_of(links) == expected_links
        changed += links_of(align_batch(method, *inputs, 0.0).links[0]) != expected_links
    assert method == "match" or (changed > 5) == (strength > 0)


def test_soft_alignments_are_zero_between_different_examples():
    source_ids = np.repeat([1, 0, 2, 3, 0], [4, 1, 1, 3, 1]).astype(np.int32)
    target_ids = np.repeat([0, 1, 2, 0, 3], [1, 2, 5, 1, 3]).astype(np.int32)
    source, target = vectors(len(source_ids), len(target_ids), 0)
    inputs = source[None], target[None], source_ids[None], target_ids[None]
    for method in METHODS:
        soft = np.asarray(align(method, *inputs, 0.5).soft)[0]
        is_other_example = source_ids[:, None] != target_ids
        is_other_example |= source_ids[:, None] == 0
        assert not soft[is_other_example].any() and 0 <= soft.min() and soft.max() <= 1 + 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_aligned_as_each_pair_alone(method):
    pairs = [vectors(5, 6, seed) for seed in range(3)]
    ones = np.ones((3, 5), np.int32), np.ones((3, 6), np.int32)
    batch = align(method, *map(np.stack, zip(*pairs, strict=True)), *ones, 0.5)
    for k, pair in enumerate(pairs):
        alone = align(method, *(side[None] for side in pair), ones[0][:1], ones[1][:1], 0.5)
        np.testing.assert_allclose(batch.soft[k], alone.soft[0], rtol=1e-5, atol=1e-6)
        if alone.links is not None:
            np.testing.assert_array_equal(batch.links[k], alone.links[0])


def test_the_table_has_the_methods_that_configs_and_commands_name():
    assert tuple(methods.METHODS) == (*choices.METHODS, *choices.TRAINED_METHODS)
    trained = [method.name for method in methods.METHODS.values() if method.head]
    assert trained == list(choices.TRAINED_METHODS)
    assert all(name == method.name for name, method in methods.METHODS.items())


def same_tokens(params, model, source, target, prior):
    """Links equal tokens with the value of a head, minus the prior off the diagonal."""
    same = source.tokens[:, :, None] == target.tokens[:, None, :]
    same &= (source.ids[:, :, None] == target.ids[:, None, :]) & (source.ids[:, :, None] > 0)
    off = 1 - jnp.eye(same.shape[1], same.shape[2])
    value = params["same_head"]["value"] - prior * off
    soft = jnp.broadcast_to(same * value, (len(source.vectors), *same.shape))
    return Alignment(soft, soft > 0)


def first_of_each(soft, source_ids, target_ids):
    """Links the first target of each source token, on the host."""
    assert all(isinstance(array, np.ndarray) for array in (soft, source_ids, target_ids))
    assert source_ids.dtype == np.int32 and source_ids.shape == (soft.shape[1], soft.shape[2])
    links = soft > 0
    return links & (np.cumsum(links, -1) == 1)


@pytest.fixture
def own_methods():
    """Registers two methods that xlj does not have."""
    added = [
        Method("same", same_tokens, head="same_head", needs="a head with one number"),
        Method(
            "first",
            lambda *arguments: same_tokens(*arguments)._replace(links=None),
            match=first_of_each,
            head="same_head",
        ),
    ]
    for method in added:
        methods.register(method)
    yield added
    for method in added:
        del methods.METHODS[method.name]


def test_own_methods_align(own_methods, copying_encoder):
    for make_aligner in (Aligner, lambda model, options: Encoder(model).align([], method="same")):
        with pytest.raises(
            ConfigError,
            match="^the method same needs a head with one number, which this model lacks",
        ):
            make_aligner(copying_encoder, AlignmentOptions("same"))
    head = {"same_head": {"value": jnp.float32(0.75)}}
    model = copying_encoder._replace(params={**copying_encoder.params, **head})
    encoder = Encoder(model)
    assert encoder.methods == (*METHODS, "same", "first")
    assert Encoder(copying_encoder).methods == METHODS
    pairs = [("one two one", "one one two"), ("two", ""), ("one", "two one")]
    all_links = [[(0, 0), (0, 1), (1, 2), (2, 0), (2, 1)], [], [(0, 1)]]
    first_links = [[(0, 0), (1, 2), (2, 0)], [], [(0, 1)]]
    for together in (True, False):
        assert encoder.align(pairs, method="same", together=together) == all_links
        assert encoder.align(pairs, 1, "first", together=together) == first_links
    word_pairs = [Pair("", a.split(), b.split()) for a, b in pairs]
    options = AlignmentOptions("first", prior=0.25)
    (first_layer, second_layer), *_ = Aligner(model, options, [0, 2]).scored(word_pairs)
    np.testing.assert_array_equal(first_layer.links, first_links[0])
    np.testing.assert_array_equal(first_layer.confidences, [0.75, 0.5, 0.5])
    np.testing.assert_array_equal(first_layer.confidences, second_layer.confidences)
    assert encoder.align(pairs, method="first", prior=0.25, threshold=0.6)[0] == [(0, 0)]


def test_two_methods_with_one_name_are_refused(own_methods, copying_encoder):
    assert methods.register(own_methods[0]) is own_methods[0]
    with pytest.raises(ValueError, match="another method already has the name same"):
        methods.register(Method("same", first_of_each))
    with pytest.raises(
        ConfigError, match="unknown method some; expected one of optimal_transport, "
    ):
        Aligner(copying_encoder, AlignmentOptions("some"))
