"""Retrieval: negatives come from the whole batch, and are never copies of the pair itself."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import compiled
from random_rows import CORPUS, rows_of, tokens_of, with_tokens
from references import bitext as reference
from references.encoder import float64

from xlj.models import encoder
from xlj.models.segments import average_examples, whole_examples
from xlj.objectives.contrast import loss as contrast
from xlj.objectives.contrast.options import Retrieval

OPTIONS = [Retrieval(temperature=1 / 5, loss=kind) for kind in ("hardest", "softmax")]
BOTH_KINDS_OF_NEGATIVES = pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: options.loss
)


def whole(function, inputs):
    return function(inputs)


def in_two_microbatches(function, inputs):
    """Applies a function to two microbatches, divided as a training step divides them."""
    parts = [jax.tree.map(lambda x, i=i: x[i::2], inputs) for i in range(2)]
    result = [function(part) for part in parts]
    return jax.tree.map(lambda a, b: jnp.stack([a, b], 1).reshape(-1, *a.shape[1:]), *result)


def vectors(params, model, side, padding):
    """Returns the normalised mean vector at the middle layer of each row, which has one example.
    Rows of padding have a constant vector."""
    read = whole_examples(model, side["tokens"], side["languages"])
    hidden = encoder.apply(params, model, read, layers=encoder.middle_layer(model.layers))
    mean = average_examples(hidden, side["tokens"], 1)[:, 0].at[padding].set(1.0)
    return mean / jnp.linalg.norm(mean, axis=1, keepdims=True)


def plain_losses(first, second, allowed, kind):
    """Computes the losses by their definitions, pair by pair, in JAX or NumPy, at a scale of 5."""
    losses = []
    for i in range(len(first)):
        negatives = np.flatnonzero(allowed[i])
        right = 5 * first[i] @ second[i]
        if kind == "hardest":
            loss = 2 * jax.nn.softplus(-right)
            loss += jax.nn.softplus(5 * (second[negatives] @ first[i]).max())
            loss += jax.nn.softplus(5 * (first[negatives] @ second[i]).max())
        else:
            others = jnp.concatenate([first[negatives], second[negatives]])
            loss = 0.0
            for own in first[i], second[i]:
                every = jnp.append(5 * others @ own, right)
                loss += jax.nn.logsumexp(every) - right
        losses.append(loss)
    return jnp.stack(losses)


@pytest.mark.slow
@BOTH_KINDS_OF_NEGATIVES
def test_loss_has_negatives_from_all_rows(options, model, params_of, keys_of):
    objective = compiled(contrast.objective("retrieval", options, model, CORPUS))
    params, rows = params_of(model, objective), rows_of("bitext", count=20)
    rows = jax.tree.map(lambda x: x.at[7].set(x[3]), rows)  # a pair that occurs twice
    rows = with_tokens(rows, tokens_of(rows).at[9].set(1))  # and a row of padding
    inputs = objective.corrupt(rows, keys_of(rows))
    result = objective.targets(params, {}, inputs, whole)
    vectors_of = jax.jit(lambda side: vectors(params, model, side, 9))
    first, second = (np.asarray(vectors_of(side)) for side in inputs.texts)
    allowed = ~np.eye(20, dtype=bool)
    allowed[9] = allowed[:, 9] = allowed[3, 7] = allowed[7, 3] = False
    real = np.arange(20) != 9
    allowed_of_real, kind = allowed[real][:, real], options.loss
    expected = jax.jit(lambda *sides: plain_losses(*sides, allowed_of_real, kind))(
        first[real], second[real]
    )
    losses = objective.loss(params, {}, result, None)["retrieval"]
    np.testing.assert_allclose(losses.sum[real], expected, rtol=1e-4)
    assert float(losses.sum[9]) == float(losses.count[9]) == 0 and losses.count.sum() == 19
    parts = objective.targets(params, {}, inputs, in_two_microbatches)
    chex.assert_trees_all_close(parts, result, rtol=1e-7, atol=1e-5)


@pytest.mark.parametrize(
    "length, count, most, layer",
    [pytest.param(48, 10, 1, 1, marks=pytest.mark.slow), (128, 30, 4, 0)],
)
@BOTH_KINDS_OF_NEGATIVES
def test_the_whole_step_equals_numpy(
    options, length, count, most, layer, full_model, params_of, keys_of, step_of
):
    """Rows have one pair or several pairs."""
    kind = options.loss
    options = Retrieval(temperature=1 / 7, loss=kind, layer=layer, weight=3.0)
    objective = contrast.objective("retrieval", options, full_model, CORPUS)
    params = params_of(full_model, objective)
    rows = rows_of("bitext", count=count, length=length)
    rows = jax.tree.map(lambda x: x[:10], rows)  # if rows have several pairs, the last may have one
    tokens, half = tokens_of(rows), length // 2
    tokens = tokens.at[7].set(tokens[3])
    changed = tokens.at[-1].set(1).at[5, :half].set(tokens[2, :half])
    if most > 1:  # both sides need the same number of examples
        assert len(tokens) >= 7
        changed = changed.at[5, half:].set(tokens[2, half:])
    rows, number = with_tokens(rows, changed), len(tokens)
    before, after, losses, counts, _ = step_of(objective, params, rows, keys_of(rows))
    shape = (number, most)
    parts = (*before.gradients, before.losses, before.correct, before.is_counted)
    for part, expected in zip(parts, [(*shape, 32)] * 2 + [shape] * 3, strict=True):
        assert part.shape == expected and not np.asarray(part).any()
    first, second = (
        reference.averaged(float64(params), full_model, side, layer, most) for side in after.texts
    )
    sides = np.asarray(rows["first"]), np.asarray(rows["second"])
    for number, (side, tokens) in enumerate(zip(before.texts, sides, strict=True)):
        np.testing.assert_array_equal(side["tokens"], tokens)
        np.testing.assert_array_equal(side["languages"], rows["languages"][:, [number, number]])
    negatives = reference.negatives_of(*sides, most)
    sums, correct = (
        x.reshape(shape).sum(1) for x in reference.compared(first, second, negatives, 7.0, kind)
    )
    actual, pairs = losses["retrieval"], [len(row) for row in reference.examples(sides[0])]
    assert pairs[-1] == 0 and max(pairs) == most
    np.testing.assert_allclose(actual.sum, sums, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(actual.correct, correct)
    np.testing.assert_array_equal(actual.count, pairs)
    np.testing.assert_array_equal(counts["retrieval"], pairs)

    def total(*sides):
        return reference.compared(*sides, negatives, 7.0, kind)[0].sum()

    gradients = (
        reference.slopes(lambda x: total(x, second), first),
        reference.slopes(lambda x: total(first, x), second),
    )
    for gradient, expected in zip(after.gradients, gradients, strict=True):
        np.testing.assert_allclose(gradient.reshape(expected.shape), expected, rtol=2e-3, atol=2e-3)
    assert objective.losses["retrieval"].weight == 3


@pytest.mark.slow
@BOTH_KINDS_OF_NEGATIVES
def test_the_gradient_is_that_of_one_loss_over_all_rows(options, model, params_of, keys_of):
    """A sentence has gradients from its own pair and as a negative of pairs in other
    microbatches."""
    objective = compiled(contrast.objective("retrieval", options, model, CORPUS))
    params, rows = params_of(model, objective), rows_of("bitext", count=12)
    tokens = tokens_of(rows)
    tokens = tokens.at[7].set(tokens[3]).at[9].set(1)  # one pair twice, a row of padding
    half = tokens.shape[1] // 2
    tokens = tokens.at[5, :half].set(tokens[2, :half])  # one sentence with two translations
    tokens = tokens.at[6, half:].set(tokens[8, :half])  # and one on both sides
    rows = with_tokens(rows, tokens)
    inputs = objective.corrupt(rows, keys_of(rows))
    result = objective.targets(params, {}, inputs, whole)
    allowed = ~np.eye(12, dtype=bool)
    allowed[9] = allowed[:, 9] = allowed[3, 7] = allowed[7, 3] = False
    allowed[2, 5] = allowed[5, 2] = allowed[6, 8] = allowed[8, 6] = False
    real = np.arange(12) != 9

    @jax.jit
    @jax.grad
    def gradient(params, part):
        return objective.loss(params, {}, part, None)["retrieval"].sum.sum()

    def at_once(params):
        first, second = (vectors(params, model, side, 9) for side in inputs.texts)
        allowed_of_real = allowed[real][:, real]
        return plain_losses(first[real], second[real], allowed_of_real, options.loss).sum()

    expected = jax.jit(jax.grad(at_once))(params)
    result = jax.device_get(result)
    parts = [gradient(params, jax.tree.map(lambda x, i=i: x[i::3], result)) for i in range(3)]
    actual = jax.tree.map(lambda *leaves: sum(leaves), *jax.device_get(parts))
    chex.assert_trees_all_close(actual, expected, rtol=1e-7, atol=2e-4)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(jax.device_get(expected))) > 0.1


@BOTH_KINDS_OF_NEGATIVES
def test_identical_pairs_have_no_loss_and_no_gradient(options, model, params_of, keys_of):
    objective = compiled(contrast.objective("retrieval", options, model, CORPUS))
    params, rows = params_of(model, objective), rows_of("bitext", count=4)
    rows = jax.tree.map(lambda x: jnp.repeat(x[:1], 4, axis=0), rows)
    result = objective.targets(params, {}, objective.corrupt(rows, keys_of(rows)), whole)
    assert not np.asarray(result.is_counted).any() and not np.asarray(result.losses).any()
    assert not any(np.asarray(gradient).any() for gradient in result.gradients)


def test_hashes_of_sentences_depend_on_the_order_of_words():
    rows = jnp.array([[0, 5, 6, 2, 0, 6, 5, 2], [0, 5, 6, 2, 1, 1, 1, 1]], jnp.int32)
    (one, reordered, padding), (again, *_) = contrast._digests(rows, 3).tolist()
    assert one == again != reordered != padding == 0


def test_digests_equal_a_plain_implementation():
    """The hash is MurmurHash3's finaliser, whose value for 1 is known."""
    bits = 2**32 - 1

    def mixed(x):
        x = (x ^ x >> 16) * 0x85EBCA6B & bits
        x = (x ^ x >> 13) * 0xC2B2AE35 & bits
        return x ^ x >> 16

    assert mixed(1) == 0x514E28B7
    tokens = np.random.default_rng(0).integers(4, 60_000, (5, 40))
    tokens[:, 0] = 0
    expected = [
        sum(mixed(id * 0x9E3779B1 + place * 0x85EBCA77 & bits) for place, id in enumerate(row))
        & bits
        for row in tokens.tolist()
    ]
    assert contrast._digests(jnp.asarray(tokens, jnp.int32), 1)[:, 0].tolist() == expected
    # 1,000 sentences, many with the same sum of ids, or the same sum of ids times places.
    all_of_three = np.stack(np.meshgrid(*[np.arange(4, 14)] * 3), -1).reshape(-1, 3)
    all_of_three = np.insert(all_of_three, 0, 0, axis=1)
    digests = contrast._digests(jnp.asarray(all_of_three, jnp.int32), 1)[:, 0].tolist()
    assert len(set(digests)) == 1000
    assert digests == [sum(map(murmur3, row, range(4))) % 2**32 for row in all_of_three.tolist()]


def murmur3(token, place):
    mixed = (token * 0x9E3779B1 + place * 0x85EBCA77) % 2**32
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ mixed >> shift) * factor % 2**32
    return mixed
