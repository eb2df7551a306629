"""XLCO: joined pairs, the queue, the momentum encoder, and the loss against NumPy."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import compiled
from random_rows import CORPUS, SIZE, as_batch, ragged, rows_of, tokens_of, with_tokens
from references import bitext as reference
from references.encoder import float64

from xlj.data.rows.kinds.bitext import Bitext
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder
from xlj.models.segments import split_sides
from xlj.objectives.masking.options import Masking
from xlj.objectives.xlco import loss as xlco
from xlj.objectives.xlco.options import CrossLingualContrast

mix = jax.jit(xlco.mix, static_argnums=2)

OPTIONS = CrossLingualContrast(queue=48, momentum=0.9, masking=Masking(rate=0.0), temperature=0.5)


def whole(function, inputs):
    return function(inputs)


def examples(row):
    """Returns the two sentences of a joined row, as tuples of tokens."""
    row = [int(t) for t in row if t != PAD]
    assert row[0] == BOS and row[-1] == EOS
    body = row[1:-1]
    cut = body.index(EOS)
    assert EOS not in body[cut + 1 :]
    return tuple(body[:cut]), tuple(body[cut + 1 :])


def text(row):
    return tuple(int(t) for t in row if t not in (PAD, BOS, EOS))


def test_each_pair_is_joined_with_another_pair_in_a_random_order_on_each_side(keys_of):
    rows = rows_of("bitext", count=200, shortest=4)  # long enough that all differ
    first, second = split_sides(rows)
    first_index = {text(row): i for i, row in enumerate(np.asarray(first["tokens"]))}
    second_index = {text(row): i for i, row in enumerate(np.asarray(second["tokens"]))}
    assert len(first_index) == len(second_index) == 200
    partners = []
    for step in (0, 1):
        one, other = mix(first, second, 1, keys_of(rows, step))
        partners_of_step, orders = [], []
        for i, (a, b) in enumerate(zip(one["tokens"], other["tokens"], strict=True)):
            left = [first_index[part] for part in examples(np.asarray(a))]
            right = [second_index[part] for part in examples(np.asarray(b))]
            assert set(left) == set(right) and i in left
            for side, mixed, parts in ((first, one, left), (second, other, right)):
                expected = [side["languages"][part, 0] for part in parts]
                np.testing.assert_array_equal(mixed["languages"][i], expected)
            partners_of_step.append(left[1] if left[0] == i else left[0])
            orders.append((left[0] == i, right[0] == i))
        assert all(partner != i for i, partner in enumerate(partners_of_step))
        assert sorted(partners_of_step) == list(range(200))
        assert {(a, b) for a, b in orders} == {(x, y) for x in (True, False) for y in (True, False)}
        partners.append(partners_of_step)
    assert sum(a != b for a, b in zip(*partners, strict=True)) > 180


@pytest.fixture
def joined(keys_of):
    """Mixes rows, most of which have the same number of pairs, and returns both sides, the examples
    of each row and side, the mixed sides, and their examples."""
    rng = np.random.default_rng(0)
    packed = [  # pairs of long sentences, and of short ones, up to the maximum of a row
        Bitext().pack([ragged(rng, *sizes) for _ in range(2)], 160, np.dtype(np.uint16)).rows
        for sizes in ((200, 4, 60), (100, 4, 16))
    ]
    fields = {name: np.concatenate([part[name] for part in packed]) for name in packed[0]}
    for tokens in fields.values():
        tokens[-2:] = PAD
    rows = as_batch(fields, rng)
    sides = split_sides(rows)
    mixed = mix(*sides, 5, keys_of(rows))
    split, result = ([reference.examples(s["tokens"]) for s in both] for both in (sides, mixed))
    assert {len(row) for row in split[0]} >= {0, 1, 2, 3, 5}
    return sides, split, mixed, result


def origins_of(joined):
    """Yields (row, place, origins) of each example of the mixed rows. The origins are the rows and
    places from which the first-side sentences of the example come."""
    _, split, _, result = joined
    index = {str(example): (row, n) for row, examples_of_row in enumerate(split[0])
             for n, example in enumerate(examples_of_row)}  # fmt: skip
    for row, examples_of_row in enumerate(result[0]):
        for n, example in enumerate(examples_of_row):
            cut = example.index(EOS) + 1
            parts = [example[:cut]] + ([[BOS, *example[cut:]]] if example[cut:] else [])
            yield row, n, [index[str(part)] for part in parts]


def test_a_row_keeps_its_number_of_pairs_and_is_padded(joined):
    _, split, mixed, result = joined
    for side, examples_of_side in zip(mixed, result, strict=True):
        assert [len(row) for row in examples_of_side] == [len(row) for row in split[0]]
        for tokens, examples_of_row in zip(side["tokens"], examples_of_side, strict=True):
            assert (np.asarray(tokens)[sum(map(len, examples_of_row)) :] == PAD).all()


def test_pairs_are_joined_with_the_pairs_at_the_same_places_of_one_other_row(joined):
    """Compares with joined lists. Each side has its own order."""
    _, split, _, result = joined
    partners, alone, orders_of_sides = {}, 0, set()
    for row, n, origins in origins_of(joined):
        assert (row, n) in origins
        if len(origins) == 1:
            alone += 1
            assert result[1][row][n] == split[1][row][n]
            continue
        (partner,) = {r for r, _ in origins} - {row}
        assert partners.setdefault(row, partner) == partner
        assert [m for _, m in origins] == [n, n]
        second = [split[1][r][n] for r in (row, partner)]
        orders = [a + b[1:] for a, b in (second, second[::-1])]
        assert result[1][row][n] in orders
        orders_of_sides.add((origins[0][0] == row, result[1][row][n] == orders[0]))
    pairs = [len(examples_of_row) for examples_of_row in split[0]]
    assert sorted(partners.values()) == sorted(partners) == [r for r, n in enumerate(pairs) if n]
    assert alone <= 2 * max(pairs) and len(orders_of_sides) == 4


def test_languages_of_joined_pairs_have_the_order_of_their_sentences(joined):
    sides, split, mixed, result = joined
    several = 0
    for row, n, origins in origins_of(joined):
        if len(origins) == 1:
            continue
        (partner,) = {r for r, _ in origins} - {row}
        second = result[1][row][n][: len(split[1][row][n])] == split[1][row][n]
        for side, mixed_side, first in zip(
            sides, mixed, (origins[0][0] == row, second), strict=True
        ):
            expected = [
                side["languages"][r, 0] for r in ((row, partner), (partner, row))[not first]
            ]
            np.testing.assert_array_equal(mixed_side["languages"][row], expected)
        several += 1
    assert several > 50


def prepared(model, params_of, keys_of, options=OPTIONS):
    """Returns an objective, its parameters, rows of one pair each, and their keys."""
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
    # The momentum encoder still equals the encoder, so both compute the same vectors of queries.
    swapped = inputs._replace(keys=inputs.queries)
    queries = objective.targets(params, state, swapped, whole).vectors
    queries, vectors = (np.asarray(x, np.float64)[:, 0] for x in (queries, inputs.vectors))
    own = (queries * vectors).sum(1) / 0.5
    others = queries @ queue[:30].T.astype(np.float64) / 0.5
    scores = np.concatenate([own[:, None], others], axis=1)
    expected = np.log(np.exp(scores - scores.max(1, keepdims=True)).sum(1)) + scores.max(1) - own
    actual = objective.loss(params, state, inputs, None)["xlco"]
    np.testing.assert_allclose(actual.sum, expected, rtol=2e-4, atol=1e-5)
    np.testing.assert_array_equal(actual.correct, own >= others.max(1))


@pytest.mark.parametrize(
    "length, count, most", [pytest.param(48, 24, 1, marks=pytest.mark.slow), (128, 60, 4)]
)
def test_the_whole_step_equals_numpy(length, count, most, full_model, params_of, keys_of, step_of):
    """Rows have one pair or several pairs; the last row is padding."""
    options = CrossLingualContrast(
        masking=Masking(rate=0.3, mask_share=0.7, random_share=0.3), weight=3.0, layer=1,
        temperature=0.6, queue=80, momentum=0.8, mixup=True,
    )  # fmt: skip
    objective = xlco.objective("xlco", options, full_model, CORPUS)
    params, other = params_of(full_model, objective), params_of(full_model, objective, seed=5)
    rows = rows_of("bitext", count=count, length=length)
    rows = with_tokens(rows, tokens_of(rows).at[-1].set(PAD))
    rng = np.random.default_rng(0)
    state = objective.init_state(other)  # a momentum encoder that is not the encoder
    assert int(state["next"]) == int(state["filled"]) == 0 and state["queue"].shape == (80, 32)
    queue = rng.normal(size=(80, 32)).astype(np.float32)
    state |= {"queue": jnp.asarray(queue), "next": jnp.int32(65), "filled": jnp.int32(65)}
    next_params = jax.tree.map(lambda leaf: 1.5 * leaf + 0.1, params)
    outputs = step_of(objective, params, rows, keys_of(rows), state, next_params)
    before, inputs, losses, counts, next_state = outputs
    assert before.vectors.shape == inputs.vectors.shape and not np.asarray(before.vectors).any()
    keys, real = reference.projected(float64(other), full_model, inputs.keys, 1, most)
    assert inputs.vectors.shape == keys.shape and real.sum(1).max() == most
    np.testing.assert_allclose(np.asarray(inputs.vectors)[real], keys[real], rtol=1e-3, atol=1e-3)
    queries, real_queries = reference.projected(
        float64(params), full_model, inputs.queries, 1, most
    )
    np.testing.assert_array_equal(real_queries, real)
    sums, correct = reference.contrast(queries, keys, queue[:65].astype(float), 0.6, real)
    pairs = [len(row) for row in reference.examples(rows["first"])]
    np.testing.assert_allclose(losses["xlco"].sum, sums, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(losses["xlco"].correct, correct)
    np.testing.assert_array_equal(losses["xlco"].count, pairs)
    np.testing.assert_array_equal(counts["xlco"], pairs)
    expected = reference.contrast_state(state, next_params, np.asarray(inputs.vectors), 0.8, real)
    chex.assert_trees_all_close(next_state, expected, rtol=1e-5, atol=1e-5)
    assert objective.losses["xlco"].weight == 3


@pytest.mark.parametrize("mixup", [True, False])
def test_both_sides_are_masked_and_either_may_be_the_query(mixup, model, keys_of):
    masking = Masking(rate=0.4, mask_share=0.6, random_share=0.3)
    options = CrossLingualContrast(masking=masking, queue=300, mixup=mixup)
    rows = rows_of("bitext", count=200, shortest=4)
    result, plain = (
        compiled(xlco.objective("xlco", o, model, CORPUS)).corrupt(rows, keys_of(rows))
        for o in (options, dataclasses.replace(options, masking=Masking(rate=0.0)))
    )
    for side in ("queries", "keys"):
        new, old = (np.asarray(getattr(inputs, side)["tokens"]) for inputs in (result, plain))
        words = (old > 3).sum()
        changed = (new != old) & (new != SIZE - 1)
        np.testing.assert_allclose((new == SIZE - 1).sum() / words, 0.4 * 0.6, atol=0.02)
        np.testing.assert_allclose(changed.sum() / words, 0.4 * 0.3, atol=0.02)
        assert (new == old)[old < 4].all()
    first = np.asarray(rows["first"])
    starts = {text(row)[:2] for row in first} if not mixup else set()
    if starts:
        of_first = [text(row)[:2] in starts for row in np.asarray(plain.queries["tokens"])]
        assert 60 < sum(of_first) < 150
        one, two = (np.asarray(rows["languages"][:, i]) for i in (0, 1))
        expected = np.where(of_first, one, two)
        assert (np.asarray(result.queries["languages"][:, 0]) == expected).mean() > 0.95


def test_an_empty_queue_gives_no_loss_and_a_finite_gradient(model, params_of, keys_of):
    objective, params, rows, keys = prepared(model, params_of, keys_of)
    state = objective.init_state(params)
    inputs = objective.targets(params, state, objective.corrupt(rows, keys), whole)

    def loss(p):
        return objective.loss(p, state, inputs, None)["xlco"].sum.sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    assert float(value) == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_the_queue_wraps_around_and_the_momentum_encoder_is_a_moving_average(
    model, params_of, keys_of
):
    objective, params, rows, keys = prepared(model, params_of, keys_of)
    params["other_head"] = {"bias": jnp.zeros(3)}  # of another objective; XLCO must ignore it
    state, inputs = objective.init_state(params), objective.corrupt(rows, keys)
    assert set(state["momentum"]) == {"embeddings", "layers", "contrast_head"}
    next_params = jax.tree.map(lambda x: x + 1.0, params)
    for step in range(3):
        vectors = jnp.full((24, 1, model.hidden), float(step + 1))
        state = objective.update(state, next_params, inputs._replace(vectors=vectors))
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
    assert inputs.queries["tokens"].shape[1] == rows["first"].shape[1]


def test_padding_is_never_a_partner(keys_of):
    """Evaluation pads the last batch."""
    rows = rows_of("bitext", count=12)
    padded = with_tokens(rows, tokens_of(rows).at[7:].set(PAD))
    one, other = mix(*split_sides(padded), 1, keys_of(rows))
    for tokens in (one["tokens"], other["tokens"]):
        assert (np.asarray(tokens[:7, 0]) == BOS).all()
        assert all(len(examples(row)) == 2 for row in np.asarray(tokens[:7]))
        assert (np.asarray(tokens[7:]) == PAD).all()


def test_a_batch_of_another_size_overwrites_the_oldest_keys(model, params_of, keys_of):
    objective, params, rows, keys = prepared(model, params_of, keys_of)
    state, inputs = objective.init_state(params), objective.corrupt(rows, keys)
    for value, count in ((1.0, 20), (2.0, 20), (3.0, 16)):  # the other rows of 24 are padding
        vectors = jnp.full((24, 1, model.hidden), value).at[3 : 27 - count].set(9.0)
        tokens = inputs.keys["tokens"].at[3 : 27 - count].set(PAD)
        batch = inputs._replace(vectors=vectors, keys={**inputs.keys, "tokens": tokens})
        state = objective.update(state, params, batch)
    queue = [float(row[0]) for row in state["queue"]]
    assert queue == [3.0] * 8 + [1.0] * 12 + [2.0] * 20 + [3.0] * 8
