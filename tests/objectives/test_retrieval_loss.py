"""Retrieval: negatives are from the whole batch, and never copies of the pair itself."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import compiled
from random_rows import CORPUS, rows_of
from references import bitext as reference
from references.encoder import float64

from xlj.config.objectives.retrieval import Retrieval
from xlj.models import encoder
from xlj.objectives import retrieval
from xlj.objectives.bitext import average_examples
from xlj.objectives.segments import whole_examples

OPTIONS = [Retrieval(scale=5.0, negatives=kind) for kind in ("hardest", "all")]
OF_BOTH = pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.negatives)


def whole(function, inputs):
    return function(inputs)


def halves_at_a_time(function, inputs):
    """Divides rows into microbatches as the step does."""
    parts = [jax.tree.map(lambda x, i=i: x[i::2], inputs) for i in range(2)]
    result = [function(part) for part in parts]
    return jax.tree.map(lambda a, b: jnp.stack([a, b], 1).reshape(-1, *a.shape[1:]), *result)


def vectors(params, model, side, padding):
    """Returns unit vectors of mean vectors at the middle layer, for one example per row; ones for
    padding."""
    read = whole_examples(model, side.tokens, side.languages)
    hidden = encoder.apply(params, model, read, layers=encoder.middle_layer(model.layers))
    mean = average_examples(hidden, side.tokens, 1)[:, 0].at[padding].set(1.0)
    return mean / jnp.linalg.norm(mean, axis=1, keepdims=True)


def wanted_losses(first, second, allowed, kind):
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


@OF_BOTH
def test_loss_has_negatives_from_all_rows(options, model, params_of, keys_of):
    objective = compiled(retrieval.objective("retrieval", options, model, CORPUS))
    params, rows = params_of(model, objective), rows_of("bitext", count=20)
    rows = jax.tree.map(lambda x: x.at[7].set(x[3]), rows)  # a pair that occurs twice
    rows = rows._replace(tokens=rows.tokens.at[9].set(1))  # and a row of padding
    inputs = objective.corrupt(rows, keys_of(rows))
    result = objective.targets(params, {}, inputs, whole)
    read = jax.jit(lambda side: vectors(params, model, side, 9))
    first, second = (np.asarray(read(side)) for side in (inputs.first, inputs.second))
    allowed = ~np.eye(20, dtype=bool)
    allowed[9] = allowed[:, 9] = allowed[3, 7] = allowed[7, 3] = False
    real = np.arange(20) != 9
    kept, kind = allowed[real][:, real], options.negatives
    expected = jax.jit(lambda *sides: wanted_losses(*sides, kept, kind))(first[real], second[real])
    found = objective.loss(params, {}, result, None)["retrieval"]
    np.testing.assert_allclose(found.sum[real], expected, rtol=1e-4)
    assert float(found.sum[9]) == float(found.count[9]) == 0 and found.count.sum() == 19
    parts = objective.targets(params, {}, inputs, halves_at_a_time)
    chex.assert_trees_all_close(parts, result, rtol=1e-7, atol=1e-5)


@pytest.mark.parametrize("length, count, most, layer", [(48, 10, 1, 1), (128, 30, 4, 0)])
@OF_BOTH
def test_all_of_it_equals_numpy(
    options, length, count, most, layer, full_model, params_of, keys_of, step_of
):
    """Rows have one pair, or several."""
    kind = options.negatives
    options = Retrieval(scale=7.0, negatives=kind, layer=layer, weight=3.0)
    objective = retrieval.objective("retrieval", options, full_model, CORPUS)
    params = params_of(full_model, objective)
    rows = rows_of("bitext", count=count, length=length)
    rows = jax.tree.map(lambda x: x[:10], rows)  # of several pairs, only the last may have one
    tokens, half = rows.tokens.at[7].set(rows.tokens[3]), length // 2
    rows = rows._replace(tokens=tokens.at[-1].set(1).at[5, :half].set(tokens[2, :half]))
    if most > 1:  # as many on both sides
        assert len(rows.tokens) >= 7
        rows = rows._replace(tokens=rows.tokens.at[5, half:].set(tokens[2, half:]))
    number = len(rows.tokens)
    before, result, losses, counts, _ = step_of(objective, params, rows, keys_of(rows))
    shape = (number, most)
    for part, expected in zip(before[2:], [(*shape, 32)] * 2 + [shape] * 3, strict=True):
        assert part.shape == expected and not np.asarray(part).any()
    first, second = (
        reference.averaged(float64(params), full_model, side, layer, most)
        for side in (result.first, result.second)
    )
    sides = np.asarray(rows.tokens[:, :half]), np.asarray(rows.tokens[:, half:])
    for number, (side, tokens) in enumerate(zip(before[:2], sides, strict=True)):
        np.testing.assert_array_equal(side.tokens, tokens)
        np.testing.assert_array_equal(side.languages, rows.languages[:, [number, number]])
    negatives = reference.negatives_of(*sides, most)
    sums, correct = (
        x.reshape(shape).sum(1) for x in reference.compared(first, second, negatives, 7.0, kind)
    )
    found, pairs = losses["retrieval"], [len(row) for row in reference.examples(sides[0])]
    assert pairs[-1] == 0 and max(pairs) == most
    np.testing.assert_allclose(found.sum, sums, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(found.correct, correct)
    np.testing.assert_array_equal(found.count, pairs)
    np.testing.assert_array_equal(counts["retrieval"], pairs)

    def total(*sides):
        return reference.compared(*sides, negatives, 7.0, kind)[0].sum()

    pulls = (
        reference.slopes(lambda x: total(x, second), first),
        reference.slopes(lambda x: total(first, x), second),
    )
    for pull, expected in zip((result.gradient_first, result.gradient_second), pulls, strict=True):
        np.testing.assert_allclose(pull.reshape(expected.shape), expected, rtol=2e-3, atol=2e-3)
    assert objective.losses["retrieval"].weight == 3


@OF_BOTH
def test_gradient_is_of_one_loss_over_all_rows(options, model, params_of, keys_of):
    """A sentence has gradients from its pair and as a negative of others, in any microbatch."""
    objective = compiled(retrieval.objective("retrieval", options, model, CORPUS))
    params, rows = params_of(model, objective), rows_of("bitext", count=12)
    tokens = rows.tokens.at[7].set(rows.tokens[3]).at[9].set(1)  # a pair twice, a row of padding
    half = tokens.shape[1] // 2
    tokens = tokens.at[5, :half].set(tokens[2, :half])  # one sentence with two translations
    tokens = tokens.at[6, half:].set(tokens[8, :half])  # and one on both sides
    rows = rows._replace(tokens=tokens)
    inputs = objective.corrupt(rows, keys_of(rows))
    result = objective.targets(params, {}, inputs, whole)
    allowed = ~np.eye(12, dtype=bool)
    allowed[9] = allowed[:, 9] = allowed[3, 7] = allowed[7, 3] = False
    allowed[2, 5] = allowed[5, 2] = allowed[6, 8] = allowed[8, 6] = False
    real = np.arange(12) != 9

    @jax.jit
    @jax.grad
    def ours(params, part):
        return objective.loss(params, {}, part, None)["retrieval"].sum.sum()

    def at_once(params):
        first, second = (vectors(params, model, side, 9) for side in (inputs.first, inputs.second))
        kept = allowed[real][:, real]
        return wanted_losses(first[real], second[real], kept, options.negatives).sum()

    expected = jax.jit(jax.grad(at_once))(params)
    result = jax.device_get(result)
    parts = [ours(params, jax.tree.map(lambda x, i=i: x[i::3], result)) for i in range(3)]
    found = jax.tree.map(lambda *leaves: sum(leaves), *jax.device_get(parts))
    chex.assert_trees_all_close(found, expected, rtol=1e-7, atol=2e-4)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(jax.device_get(expected))) > 0.1


@OF_BOTH
def test_correct_pairs_are_nearer_than_every_negative(options):
    """The sides of the second pair are more similar to each other than to the other side of any
    pair, but its first sentence is even more similar to a sentence of its own side."""
    angles = jnp.array([[0.0, 0.02], [1.0, 1.2], [0.9, 2.0]])
    first, second = (jnp.stack([jnp.cos(side), jnp.sin(side)], 1) for side in angles.T)
    against = {"hardest": retrieval.hardest_negative_loss, "all": retrieval.all_negatives_loss}
    _, correct = against[options.negatives](first, second, ~jnp.eye(3, dtype=bool), 5.0)
    assert correct.tolist() == [True, options.negatives == "hardest", False]


@OF_BOTH
def test_pairs_that_are_all_the_same_teach_nothing(options, model, params_of, keys_of):
    objective = compiled(retrieval.objective("retrieval", options, model, CORPUS))
    params, rows = params_of(model, objective), rows_of("bitext", count=4)
    rows = jax.tree.map(lambda x: jnp.repeat(x[:1], 4, axis=0), rows)
    result = objective.targets(params, {}, objective.corrupt(rows, keys_of(rows)), whole)
    assert not np.asarray(result.has_negative).any() and not np.asarray(result.losses).any()
    assert (
        not np.asarray(result.gradient_first).any() and not np.asarray(result.gradient_second).any()
    )


def test_hashes_of_sentences_depend_on_the_order_of_words():
    rows = jnp.array([[0, 5, 6, 2, 0, 6, 5, 2], [0, 5, 6, 2, 1, 1, 1, 1]], jnp.int32)
    (one, turned, none), (again, *_) = retrieval._digests(rows, 3).tolist()
    assert one == again != turned != none == 0


def test_digests_equal_a_transcription():
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
    assert retrieval._digests(jnp.asarray(tokens, jnp.int32), 1)[:, 0].tolist() == expected
    # 1,000 sentences, many with the same sum of ids, or the same sum of ids times places.
    all_of_three = np.stack(np.meshgrid(*[np.arange(4, 14)] * 3), -1).reshape(-1, 3)
    all_of_three = np.insert(all_of_three, 0, 0, axis=1)
    digests = retrieval._digests(jnp.asarray(all_of_three, jnp.int32), 1)[:, 0].tolist()
    assert len(set(digests)) == 1000
    assert digests == [sum(map(murmur3, row, range(4))) % 2**32 for row in all_of_three.tolist()]


def murmur3(token, place):
    mixed = (token * 0x9E3779B1 + place * 0x85EBCA77) % 2**32
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ mixed >> shift) * factor % 2**32
    return mixed
