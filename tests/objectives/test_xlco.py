"""XLCO: partners, the queue, the momentum encoder, and the loss against NumPy."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_rows import CORPUS, SIZE, rows_of
from references import bitext as reference
from references.encoder import float64

from xlj.config.objectives.xlco import Contrast
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder
from xlj.objectives import xlco
from xlj.objectives.bitext import halves

OPTIONS = Contrast(queue=48, momentum=0.9, mask_rate=0.0, temperature=0.5)


def whole(function, inputs):
    return function(inputs)


def examples(row):
    """The sentences of a joined row, as tuples of tokens."""
    row = [int(t) for t in row if t != PAD]
    assert row[0] == BOS and row[-1] == EOS
    body = row[1:-1]
    cut = body.index(EOS)
    assert EOS not in body[cut + 1 :]
    return tuple(body[:cut]), tuple(body[cut + 1 :])


def text(row):
    return tuple(int(t) for t in row if t not in (PAD, BOS, EOS))


def test_each_pair_is_joined_with_another_in_an_order_of_its_own(keys_of):
    rows = rows_of("bitext", count=200, shortest=4)  # all different
    first, second = halves(rows)
    index = {text(row): i for i, row in enumerate(np.asarray(first.tokens))}
    index2 = {text(row): i for i, row in enumerate(np.asarray(second.tokens))}
    assert len(index) == len(index2) == 200
    partners = []
    for step in (0, 1):
        one, other = xlco.mix(first, second, keys_of(rows, step))
        found, turned = [], []
        for i, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=True)):
            left = [index[part] for part in examples(np.asarray(a))]
            right = [index2[part] for part in examples(np.asarray(b))]
            assert set(left) == set(right) and i in left
            for side, mixed, parts in ((first, one, left), (second, other, right)):
                wanted = [side.languages[part, 0] for part in parts]
                np.testing.assert_array_equal(mixed.languages[i], wanted)
            found.append(left[1] if left[0] == i else left[0])
            turned.append((left[0] == i, right[0] == i))
        assert all(partner != i for i, partner in enumerate(found))
        assert sorted(found) == list(range(200))
        assert {(a, b) for a, b in turned} == {(x, y) for x in (True, False) for y in (True, False)}
        partners.append(found)
    assert sum(a != b for a, b in zip(*partners, strict=True)) > 180


def prepared(model, params_of, keys_of, options=OPTIONS):
    objective = xlco.objective("xlco", options, model, CORPUS)
    params = params_of(model, objective)
    rows = rows_of("bitext", count=24)
    return objective, params, rows, keys_of(rows)


def test_loss_equals_numpy(model, params_of, keys_of):
    objective, params, rows, keys = prepared(model, params_of, keys_of)
    state = objective.init_state(params)
    queue = np.random.default_rng(0).normal(size=state["queue"].shape).astype(np.float32)
    state |= {"queue": jnp.asarray(queue), "filled": jnp.int32(30)}
    inputs = objective.targets(params, state, jax.jit(objective.corrupt)(rows, keys), whole)
    # The momentum encoder is still the encoder, so its vectors of the queries are the queries'.
    swapped = inputs._replace(keys=inputs.queries)
    queries = np.asarray(objective.targets(params, state, swapped, whole).vectors, np.float64)
    own = (queries * np.asarray(inputs.vectors, np.float64)).sum(1) / 0.5
    others = queries @ queue[:30].T.astype(np.float64) / 0.5
    scores = np.concatenate([own[:, None], others], axis=1)
    wanted = np.log(np.exp(scores - scores.max(1, keepdims=True)).sum(1)) + scores.max(1) - own
    found = objective.loss(params, state, inputs, None)["xlco"]
    np.testing.assert_allclose(found.sum, wanted, rtol=2e-4, atol=1e-5)
    np.testing.assert_array_equal(found.correct, own >= others.max(1))


def test_all_of_it_equals_numpy(full_model, params_of, keys_of, step_of):
    options = Contrast(
        mask_rate=0.3, mask_share=0.7, random_share=0.3, weight=3.0, layer=1, temperature=0.6,
        queue=40, momentum=0.8, mixup=True,
    )  # fmt: skip
    objective = xlco.objective("xlco", options, full_model, CORPUS)
    params, other = params_of(full_model, objective), params_of(full_model, objective, seed=5)
    rows, rng = rows_of("bitext"), np.random.default_rng(0)
    state = objective.init_state(other)  # a momentum encoder that is not the encoder
    assert int(state["next"]) == int(state["filled"]) == 0 and state["queue"].shape == (40, 32)
    queue = rng.normal(size=(40, 32)).astype(np.float32)
    state |= {"queue": jnp.asarray(queue), "next": jnp.int32(25), "filled": jnp.int32(25)}
    moved = jax.tree.map(lambda leaf: 1.5 * leaf + 0.1, params)
    made = step_of(objective, params, rows, keys_of(rows), state, moved)
    before, inputs, losses, counts, following = made
    assert before.vectors.shape == inputs.vectors.shape and not np.asarray(before.vectors).any()
    keys = reference.projected(float64(other), full_model, inputs.keys, layer=1)
    np.testing.assert_allclose(inputs.vectors, keys, rtol=1e-3, atol=1e-3)
    queries = reference.projected(float64(params), full_model, inputs.queries, layer=1)
    sums, correct = reference.contrast(queries, keys, queue[:25].astype(float), 0.6)
    np.testing.assert_allclose(losses["xlco"].sum, sums, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(losses["xlco"].correct, correct)
    np.testing.assert_array_equal(losses["xlco"].count, np.ones(len(sums)))
    np.testing.assert_array_equal(counts["xlco"], np.ones(len(sums)))
    wanted = reference.contrast_state(state, moved, np.asarray(inputs.vectors), 0.8)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), following, wanted)
    assert objective.losses["xlco"].weight == 3


@pytest.mark.parametrize("mixup", [True, False])
def test_both_sides_are_masked_and_either_is_the_query(mixup, model, keys_of):
    options = Contrast(mask_rate=0.4, mask_share=0.6, random_share=0.3, queue=300, mixup=mixup)
    rows = rows_of("bitext", count=200, shortest=4)
    made, plain = (
        xlco.corrupt(rows, keys_of(rows), options=o, model=model, corpus=CORPUS)
        for o in (options, dataclasses.replace(options, mask_rate=0.0))
    )
    for side in ("queries", "keys"):
        new, old = (np.asarray(getattr(inputs, side).tokens) for inputs in (made, plain))
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
        wanted = np.where(of_first, one, two)
        assert (np.asarray(made.queries.languages[:, 0]) == wanted).mean() > 0.95


def test_an_empty_queue_gives_no_loss_and_a_finite_gradient(model, params_of, keys_of):
    objective, params, rows, keys = prepared(model, params_of, keys_of)
    state = objective.init_state(params)
    inputs = objective.targets(params, state, jax.jit(objective.corrupt)(rows, keys), whole)

    def loss(p):
        return objective.loss(p, state, inputs, None)["xlco"].sum.sum()

    value, gradient = jax.value_and_grad(loss)(params)
    assert float(value) == 0
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_the_queue_goes_round_and_the_momentum_encoder_follows(model, params_of, keys_of):
    objective, params, rows, keys = prepared(model, params_of, keys_of)
    params["other_head"] = {"bias": jnp.zeros(3)}  # of another objective: none of its business
    state, inputs = objective.init_state(params), jax.jit(objective.corrupt)(rows, keys)
    assert set(state["momentum"]) == {"embeddings", "layers", "contrast_head"}
    moved = jax.tree.map(lambda x: x + 1.0, params)
    for step in range(3):
        vectors = jnp.full((24, model.hidden), float(step + 1))
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
    inputs = objective.targets(params, state, jax.jit(objective.corrupt)(rows, keys), whole)

    def loss(momentum):
        return objective.loss(params, state | {"momentum": momentum}, inputs, None)[
            "xlco"
        ].sum.sum()

    gradient = jax.grad(loss)(state["momentum"])
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))
    assert inputs.queries.tokens.shape[1] == rows.tokens.shape[1] // 2


def test_padding_is_nobodys_partner(keys_of):
    """As in evaluation, where the last batch is filled up."""
    rows = rows_of("bitext", count=12)
    padded = rows._replace(tokens=rows.tokens.at[7:].set(PAD))
    one, other = xlco.mix(*halves(padded), keys_of(rows))
    for tokens in (one.tokens, other.tokens):
        assert (np.asarray(tokens[:7, 0]) == BOS).all()
        assert all(len(examples(row)) == 2 for row in np.asarray(tokens[:7]))
        assert (np.asarray(tokens[7:]) == PAD).all()


def test_a_batch_of_another_size_overwrites_the_oldest_keys(model, params_of, keys_of):
    objective, params, rows, keys = prepared(model, params_of, keys_of)
    state, inputs = objective.init_state(params), jax.jit(objective.corrupt)(rows, keys)
    for value, count in ((1.0, 20), (2.0, 20), (3.0, 16)):
        vectors = jnp.full((count, model.hidden), value)
        state = objective.update(state, params, inputs._replace(vectors=vectors))
    found = [float(row[0]) for row in state["queue"]]
    assert found == [3.0] * 8 + [1.0] * 12 + [2.0] * 20 + [3.0] * 8
