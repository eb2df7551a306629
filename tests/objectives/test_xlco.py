"""XLCO: partners, the queue, the momentum encoder, and the loss against NumPy."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import compiled
from random_rows import CORPUS, SIZE, ragged, rows_of
from references import bitext as reference
from references.encoder import float64

from xlj.config.objectives.xlco import Contrast
from xlj.data.rows import packing
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder
from xlj.objectives import xlco
from xlj.objectives.bitext import split_sides
from xlj.objectives.objective import Rows

mix = jax.jit(xlco.mix, static_argnums=2)

OPTIONS = Contrast(queue=48, momentum=0.9, mask_rate=0.0, temperature=0.5)


def whole(function, inputs):
    return function(inputs)


def examples(row):
    """Returns the sentences of a joined row, as tuples of tokens."""
    row = [int(t) for t in row if t != PAD]
    assert row[0] == BOS and row[-1] == EOS
    body = row[1:-1]
    cut = body.index(EOS)
    assert EOS not in body[cut + 1 :]
    return tuple(body[:cut]), tuple(body[cut + 1 :])


def text(row):
    return tuple(int(t) for t in row if t not in (PAD, BOS, EOS))


def test_each_pair_is_joined_with_another_in_its_own_order(keys_of):
    rows = rows_of("bitext", count=200, shortest=4)  # all different
    first, second = split_sides(rows)
    index = {text(row): i for i, row in enumerate(np.asarray(first.tokens))}
    index2 = {text(row): i for i, row in enumerate(np.asarray(second.tokens))}
    assert len(index) == len(index2) == 200
    partners = []
    for step in (0, 1):
        one, other = mix(first, second, 1, keys_of(rows, step))
        found, turned = [], []
        for i, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=True)):
            left = [index[part] for part in examples(np.asarray(a))]
            right = [index2[part] for part in examples(np.asarray(b))]
            assert set(left) == set(right) and i in left
            for side, mixed, parts in ((first, one, left), (second, other, right)):
                expected = [side.languages[part, 0] for part in parts]
                np.testing.assert_array_equal(mixed.languages[i], expected)
            found.append(left[1] if left[0] == i else left[0])
            turned.append((left[0] == i, right[0] == i))
        assert all(partner != i for i, partner in enumerate(found))
        assert sorted(found) == list(range(200))
        assert {(a, b) for a, b in turned} == {(x, y) for x in (True, False) for y in (True, False)}
        partners.append(found)
    assert sum(a != b for a, b in zip(*partners, strict=True)) > 180


@pytest.fixture
def joined(keys_of):
    """Mixes rows, of which most have the same number of pairs, and returns both sides, the examples
    of each row and side, the mixed sides, and their examples."""
    rng = np.random.default_rng(0)
    packed = [  # of long sentences, and of short ones, as many as a row may have
        packing.pack_bitext(*(ragged(rng, *sizes) for _ in range(2)), 160, np.dtype(np.uint16)).rows
        for sizes in ((200, 4, 60), (100, 4, 16))
    ]
    tokens = jnp.asarray(np.concatenate(packed), jnp.int32).at[-2:].set(PAD)
    rows = Rows(tokens, jnp.asarray(rng.integers(0, 3, (len(tokens), 2)), jnp.int32))
    sides = split_sides(rows)
    mixed = mix(*sides, 5, keys_of(rows))
    split, result = ([reference.examples(s.tokens) for s in both] for both in (sides, mixed))
    assert {len(row) for row in split[0]} >= {0, 1, 2, 3, 5}
    return sides, split, mixed, result


def owners_of(joined):
    """Yields (row, place, rows and places from which its first-side sentences come) of each example
    of the mixed rows."""
    _, split, _, result = joined
    index = {str(example): (row, n) for row, found in enumerate(split[0])
             for n, example in enumerate(found)}  # fmt: skip
    for row, found in enumerate(result[0]):
        for n, example in enumerate(found):
            cut = example.index(EOS) + 1
            parts = [example[:cut]] + ([[BOS, *example[cut:]]] if example[cut:] else [])
            yield row, n, [index[str(part)] for part in parts]


def test_a_row_keeps_its_number_of_pairs_and_is_filled_with_padding(joined):
    _, split, mixed, result = joined
    for side, found in zip(mixed, result, strict=True):
        assert [len(row) for row in found] == [len(row) for row in split[0]]
        for tokens, examples_of_row in zip(side.tokens, found, strict=True):
            assert (np.asarray(tokens)[sum(map(len, examples_of_row)) :] == PAD).all()


def test_pairs_of_a_row_are_joined_with_those_at_their_places_of_one_other_row(joined):
    """Compared with joined lists; each side has its own order."""
    _, split, _, result = joined
    partners, alone, turned = {}, 0, set()
    for row, n, owners in owners_of(joined):
        assert (row, n) in owners
        if len(owners) == 1:
            alone += 1
            assert result[1][row][n] == split[1][row][n]
            continue
        (partner,) = {r for r, _ in owners} - {row}
        assert partners.setdefault(row, partner) == partner
        assert [m for _, m in owners] == [n, n]
        second = [split[1][r][n] for r in (row, partner)]
        orders = [a + b[1:] for a, b in (second, second[::-1])]
        assert result[1][row][n] in orders
        turned.add((owners[0][0] == row, result[1][row][n] == orders[0]))
    pairs = [len(found) for found in split[0]]
    assert sorted(partners.values()) == sorted(partners) == [r for r, n in enumerate(pairs) if n]
    assert alone <= 2 * max(pairs) and len(turned) == 4


def test_languages_of_joined_pairs_stand_in_the_order_of_their_sentences(joined):
    sides, split, mixed, result = joined
    several = 0
    for row, n, owners in owners_of(joined):
        if len(owners) == 1:
            continue
        (partner,) = {r for r, _ in owners} - {row}
        second = result[1][row][n][: len(split[1][row][n])] == split[1][row][n]
        for side, found, first in zip(sides, mixed, (owners[0][0] == row, second), strict=True):
            expected = [side.languages[r, 0] for r in ((row, partner), (partner, row))[not first]]
            np.testing.assert_array_equal(found.languages[row], expected)
        several += 1
    assert several > 50


def prepared(model, params_of, keys_of, options=OPTIONS):
    """Rows have one pair each."""
    objective = compiled(xlco.objective("xlco", options, model, CORPUS))
    params = params_of(model, objective)
    rows = rows_of("bitext", count=24)
    return objective, params, rows, keys_of(rows)


def test_loss_equals_numpy(model, params_of, keys_of):
    objective, params, rows, keys = prepared(model, params_of, keys_of)
    state = objective.init_state(params)
    queue = np.random.default_rng(0).normal(size=state["queue"].shape).astype(np.float32)
    state |= {"queue": jnp.asarray(queue), "filled": jnp.int32(30)}
    inputs = objective.targets(params, state, objective.corrupt(rows, keys), whole)
    # The momentum encoder still equals the encoder, so both give queries the same vectors.
    swapped = inputs._replace(keys=inputs.queries)
    queries = objective.targets(params, state, swapped, whole).vectors
    queries, vectors = (np.asarray(x, np.float64)[:, 0] for x in (queries, inputs.vectors))
    own = (queries * vectors).sum(1) / 0.5
    others = queries @ queue[:30].T.astype(np.float64) / 0.5
    scores = np.concatenate([own[:, None], others], axis=1)
    expected = np.log(np.exp(scores - scores.max(1, keepdims=True)).sum(1)) + scores.max(1) - own
    found = objective.loss(params, state, inputs, None)["xlco"]
    np.testing.assert_allclose(found.sum, expected, rtol=2e-4, atol=1e-5)
    np.testing.assert_array_equal(found.correct, own >= others.max(1))


@pytest.mark.parametrize(
    "length, count, most", [pytest.param(48, 24, 1, marks=pytest.mark.slow), (128, 60, 4)]
)
def test_all_of_it_equals_numpy(length, count, most, full_model, params_of, keys_of, step_of):
    """Rows have one pair, or several; the last row is padding."""
    options = Contrast(
        mask_rate=0.3, mask_share=0.7, random_share=0.3, weight=3.0, layer=1, temperature=0.6,
        queue=80, momentum=0.8, mixup=True,
    )  # fmt: skip
    objective = xlco.objective("xlco", options, full_model, CORPUS)
    params, other = params_of(full_model, objective), params_of(full_model, objective, seed=5)
    rows = rows_of("bitext", count=count, length=length)
    rows, rng = rows._replace(tokens=rows.tokens.at[-1].set(PAD)), np.random.default_rng(0)
    state = objective.init_state(other)  # a momentum encoder that is not the encoder
    assert int(state["next"]) == int(state["filled"]) == 0 and state["queue"].shape == (80, 32)
    queue = rng.normal(size=(80, 32)).astype(np.float32)
    state |= {"queue": jnp.asarray(queue), "next": jnp.int32(65), "filled": jnp.int32(65)}
    moved = jax.tree.map(lambda leaf: 1.5 * leaf + 0.1, params)
    result = step_of(objective, params, rows, keys_of(rows), state, moved)
    before, inputs, losses, counts, following = result
    assert before.vectors.shape == inputs.vectors.shape and not np.asarray(before.vectors).any()
    keys, there = reference.projected(float64(other), full_model, inputs.keys, 1, most)
    assert inputs.vectors.shape == keys.shape and there.sum(1).max() == most
    np.testing.assert_allclose(np.asarray(inputs.vectors)[there], keys[there], rtol=1e-3, atol=1e-3)
    queries, same = reference.projected(float64(params), full_model, inputs.queries, 1, most)
    np.testing.assert_array_equal(same, there)
    sums, correct = reference.contrast(queries, keys, queue[:65].astype(float), 0.6, there)
    pairs = [len(row) for row in reference.examples(rows.tokens[:, : length // 2])]
    np.testing.assert_allclose(losses["xlco"].sum, sums, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(losses["xlco"].correct, correct)
    np.testing.assert_array_equal(losses["xlco"].count, pairs)
    np.testing.assert_array_equal(counts["xlco"], pairs)
    expected = reference.contrast_state(state, moved, np.asarray(inputs.vectors), 0.8, there)
    chex.assert_trees_all_close(following, expected, rtol=1e-5, atol=1e-5)
    assert objective.losses["xlco"].weight == 3


@pytest.mark.parametrize("mixup", [True, False])
def test_both_sides_are_masked_and_either_is_the_query(mixup, model, keys_of):
    options = Contrast(mask_rate=0.4, mask_share=0.6, random_share=0.3, queue=300, mixup=mixup)
    rows = rows_of("bitext", count=200, shortest=4)
    result, plain = (
        compiled(xlco.objective("xlco", o, model, CORPUS)).corrupt(rows, keys_of(rows))
        for o in (options, dataclasses.replace(options, mask_rate=0.0))
    )
    for side in ("queries", "keys"):
        new, old = (np.asarray(getattr(inputs, side).tokens) for inputs in (result, plain))
        words = (old > 3).sum()
        changed = (new != old) & (new != SIZE - 1)
        np.testing.assert_allclose((new == SIZE - 1).sum() / words, 0.4 * 0.6, atol=0.02)
        np.testing.assert_allclose(changed.sum() / words, 0.4 * 0.3, atol=0.02)
        assert (new == old)[old < 4].all()
    first = np.asarray(rows.tokens[:, : rows.tokens.shape[1] // 2])
    starts = {text(row)[:2] for row in first} if not mixup else set()
    if starts:
        of_first = [text(row)[:2] in starts for row in np.asarray(plain.queries.tokens)]
        assert 60 < sum(of_first) < 150
        one, two = (np.asarray(rows.languages[:, i]) for i in (0, 1))
        expected = np.where(of_first, one, two)
        assert (np.asarray(result.queries.languages[:, 0]) == expected).mean() > 0.95


def test_an_empty_queue_gives_no_loss_and_a_finite_gradient(model, params_of, keys_of):
    objective, params, rows, keys = prepared(model, params_of, keys_of)
    state = objective.init_state(params)
    inputs = objective.targets(params, state, objective.corrupt(rows, keys), whole)

    def loss(p):
        return objective.loss(p, state, inputs, None)["xlco"].sum.sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    assert float(value) == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_the_queue_goes_round_and_the_momentum_encoder_follows(model, params_of, keys_of):
    objective, params, rows, keys = prepared(model, params_of, keys_of)
    params["other_head"] = {"bias": jnp.zeros(3)}  # of another objective: none of its business
    state, inputs = objective.init_state(params), objective.corrupt(rows, keys)
    assert set(state["momentum"]) == {"embeddings", "layers", "contrast_head"}
    moved = jax.tree.map(lambda x: x + 1.0, params)
    for step in range(3):
        vectors = jnp.full((24, 1, model.hidden), float(step + 1))
        state = objective.update(state, moved, inputs._replace(vectors=vectors))
        assert int(state["filled"]) == min(24 * (step + 1), 48)
    assert int(state["next"]) == 24
    assert set(np.unique(state["queue"][:24])) == {3.0}
    assert set(np.unique(state["queue"][24:])) == {2.0}
    word = np.asarray(state["momentum"]["embeddings"]["word"] - params["embeddings"]["word"])
    np.testing.assert_allclose(word, 1 - 0.9**3, atol=1e-5)
    layers = jax.tree.leaves(state["momentum"]["layers"])
    assert all(len(leaf) == encoder.middle_layer(model.layers) for leaf in layers)


def test_no_gradient_reaches_the_keys(model, params_of, keys_of):
    objective, params, rows, keys = prepared(
        model, params_of, keys_of, dataclasses.replace(OPTIONS, mixup=False)
    )
    state = objective.init_state(params) | {"filled": jnp.int32(48)}
    state["queue"] = jax.random.normal(jax.random.key(0), state["queue"].shape)
    inputs = objective.targets(params, state, objective.corrupt(rows, keys), whole)

    def loss(momentum):
        return objective.loss(params, state | {"momentum": momentum}, inputs, None)[
            "xlco"
        ].sum.sum()

    gradient = jax.jit(jax.grad(loss))(state["momentum"])
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(gradient))
    assert inputs.queries.tokens.shape[1] == rows.tokens.shape[1] // 2


def test_padding_is_nobodys_partner(keys_of):
    """As in evaluation, which pads the last batch."""
    rows = rows_of("bitext", count=12)
    padded = rows._replace(tokens=rows.tokens.at[7:].set(PAD))
    one, other = mix(*split_sides(padded), 1, keys_of(rows))
    for tokens in (one.tokens, other.tokens):
        assert (np.asarray(tokens[:7, 0]) == BOS).all()
        assert all(len(examples(row)) == 2 for row in np.asarray(tokens[:7]))
        assert (np.asarray(tokens[7:]) == PAD).all()


def test_a_batch_of_another_size_overwrites_the_oldest_keys(model, params_of, keys_of):
    objective, params, rows, keys = prepared(model, params_of, keys_of)
    state, inputs = objective.init_state(params), objective.corrupt(rows, keys)
    for value, count in ((1.0, 20), (2.0, 20), (3.0, 16)):  # of 24 rows, the others are padding
        vectors = jnp.full((24, 1, model.hidden), value).at[3 : 27 - count].set(9.0)
        tokens = inputs.keys.tokens.at[3 : 27 - count].set(PAD)
        batch = inputs._replace(vectors=vectors, keys=inputs.keys._replace(tokens=tokens))
        state = objective.update(state, params, batch)
    found = [float(row[0]) for row in state["queue"]]
    assert found == [3.0] * 8 + [1.0] * 12 + [2.0] * 20 + [3.0] * 8
