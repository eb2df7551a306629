"""XLCO: partners, the queue, the momentum encoder, and the loss against NumPy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from random_rows import CORPUS, rows_of

from xlj.config.objectives import Contrast
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
    rows = rows_of("bitext", count=200)
    first, second = halves(rows)
    partners = []
    for step in (0, 1):
        one, other = xlco.mix(first, second, keys_of(rows, step))
        index = {text(row): i for i, row in enumerate(np.asarray(first.tokens))}
        index2 = {text(row): i for i, row in enumerate(np.asarray(second.tokens))}
        found, turned = [], []
        for i, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=True)):
            left = [index.get(part) for part in examples(np.asarray(a))]
            right = [index2.get(part) for part in examples(np.asarray(b))]
            assert set(left) == set(right) or None in left + right or len(index) < 200
            assert i in left or len(index) < 200
            found.append(left[1] if left[0] == i else left[0])
            turned.append((left[0] == i, right[0] == i))
        assert all(partner != i for i, partner in enumerate(found))
        assert sorted(found) == list(range(200)) or len(index) < 200
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
    state, inputs = objective.init_state(params), jax.jit(objective.corrupt)(rows, keys)
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
