"""Fixtures: small models, asymmetric parameters, and the results of an objective for rows."""

import dataclasses

import jax
import numpy as np
import pytest
from random_rows import CORPUS, SIZE

from xlj.config import Model
from xlj.models import encoder


@pytest.fixture
def model():
    return Model(layers=2, hidden=32, heads=4, intermediate=64, positions=66, init_std=0.3)


MODERN = (
    "test_the_whole_step_equals_numpy",
    "test_a_loss_and_its_gradient_are_the_same_with_fused",
)
"""The names, or their beginnings, of tests with `full_model` that run on a modern encoder too."""


def pytest_generate_tests(metafunc):
    if "full_model" in metafunc.fixturenames:
        kinds = ["xlm_r"]
        if metafunc.function.__name__.startswith(MODERN):
            kinds.append(pytest.param("modern", marks=pytest.mark.slow))
        metafunc.parametrize("full_model", kinds, indirect=True)


@pytest.fixture
def full_model(request, model):
    """A model whose options are all on, or differ from their defaults."""
    common = dataclasses.replace(
        model, layer_norm_epsilon=1e-3, token_types=2, pair_marks=("types", "positions"),
        position_bias="gated", position_buckets=8, position_distance=12,
        language_embeddings="all",
    )  # fmt: skip
    if request.param == "xlm_r":
        return dataclasses.replace(common, layers=3, intermediate=48)
    return dataclasses.replace(
        common, layers=3, intermediate=24, key_value_heads=2, local_attention=9,
        full_attention_every=2, absolute_positions=False,
        rotary_base=50.0, rotary_local_base=20.0, rotary_factor=1.3,
        norm="embeddings", norm_type="unbiased", middle_norm=True, feed_forward="geglu",
        biases=("output", "inner", "vocabulary"), tied=False,
        dropout_parts=("attention", "feed_forward"), pair_marks=("types", "positions", "separator"),
    )  # fmt: skip


@pytest.fixture
def params_of():
    """A function (model, objective) -> parameters, with noise added to the initial zeros and
    ones."""

    def result(model, objective, seed=0):
        def perturbed():
            key = jax.random.key(seed)
            params = encoder.init(key, model, SIZE, len(CORPUS.languages))
            for name, make in objective.parts.items():
                params[name] = make(jax.random.fold_in(key, len(name)))
            leaves, structure = jax.tree.flatten(params)
            keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
            pairs = zip(leaves, keys, strict=True)
            return structure.unflatten([x + 0.1 * jax.random.normal(k, x.shape) for x, k in pairs])

        return jax.jit(perturbed)()

    return result


@pytest.fixture
def keys_of():
    return lambda rows, seed=0: jax.random.split(jax.random.key(seed), len(rows["languages"]))


@pytest.fixture
def step_of():
    """A function (objective, params, rows, keys) -> inputs before and after `targets`, losses,
    counts and next state, compiled to one program. `next_params` are the parameters after the
    step."""

    def step_of(objective, params, rows, keys, state=None, next_params=None):
        @jax.jit
        def step(params, state, next_params, rows, keys):
            before = objective.corrupt(rows, keys)
            after = objective.targets(
                params, state, before, lambda function, inputs: function(inputs)
            )
            losses = objective.loss(params, state, after, None)
            next_state = objective.update(state, next_params, after)
            return before, after, losses, objective.count(after), next_state

        return step(params, state or {}, next_params or params, rows, keys)

    return step_of


@pytest.fixture
def assert_sums():
    """A function that compares the losses and counts of rows with (sums, counts, correct)."""

    def assert_sums(actual, counted, expected):
        np.testing.assert_allclose(actual.sum, expected[0], rtol=2e-4, atol=2e-4)
        np.testing.assert_array_equal(actual.count, expected[1])
        np.testing.assert_array_equal(counted, expected[1])
        np.testing.assert_array_equal(actual.correct, expected[2])
        assert np.sum(expected[1]) > 20

    return assert_sums


@pytest.fixture
def assert_masked():
    """A function that checks masked rows against the original rows and the shares of `options`."""

    def assert_masked(tokens, masked, options):
        tokens, first, mask = np.asarray(tokens), 4, SIZE - 1
        actions = np.zeros(3)
        for row, ids in enumerate(tokens):
            positions = np.asarray(masked.positions[row])
            chosen = positions[np.asarray(masked.weights[row]) > 0]
            expected = options.mask_rate * ((ids >= first) & (ids < mask)).sum()
            assert len(chosen) - expected < 1 and expected - len(chosen) < 1
            assert len(set(positions)) == len(positions)
            np.testing.assert_array_equal(masked.labels[row], ids[positions])
            assert ((ids[chosen] >= first) & (ids[chosen] < mask)).all()
            new = np.asarray(masked.tokens[row])
            np.testing.assert_array_equal(np.delete(new, chosen), np.delete(ids, chosen))
            replacements = (
                new[chosen] == mask,
                (new[chosen] != ids[chosen]) & (new[chosen] != mask),
            )
            actions += [replacements[0].sum(), replacements[1].sum(), len(chosen)]
        shares = actions[:2] / actions[2]
        np.testing.assert_allclose(
            shares, [options.masking.mask_share, options.masking.random_share], atol=0.15
        )

    return assert_masked


@pytest.fixture
def gumbel():
    """A function (key of each row, positions [rows, slots], length) -> the noise that xlj adds to
    logits when it samples a token, [rows, length, vocabulary]."""

    def gumbel(rngs, positions, length):
        def of_row(rng):
            keys = jax.random.split(rng, positions.shape[1])
            return jax.vmap(lambda key: jax.random.gumbel(jax.random.fold_in(key, 0), (SIZE,)))(
                keys
            )

        noise = np.zeros((len(positions), length, SIZE))
        rows = np.arange(len(positions))[:, None]
        noise[rows, np.asarray(positions)] = jax.vmap(of_row)(rngs)
        return noise

    return gumbel
