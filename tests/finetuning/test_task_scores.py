"""Predictions equal the output of the head, for every kind of task and number of devices."""

import jax
import numpy as np
import pytest

from xlj.config import Config, Mesh, Model
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.inference.predictor import Predictor
from xlj.models import encoder
from xlj.objectives.supervised import loss as supervised
from xlj.objectives.supervised.options import SUPERVISED
from xlj.sharding.meshes import make_mesh
from xlj.sharding.trees import shardings

MODEL = Model(layers=1, hidden=16, heads=2, intermediate=32, positions=66, init_std=0.3)


FAST = ("classification", "tagging")
KINDS = [kind for kind in SUPERVISED if kind != "word_links"]  # the aligner predicts links


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k not in FAST)) for k in KINDS]
)
def test_predictions_equal_the_output_of_the_head(kind):
    rng = np.random.default_rng(0)
    tokens = np.full((300, 64), PAD, np.int32)
    for row in tokens:
        size = rng.integers(2, 65)
        row[:size] = rng.integers(4, 50, size)
        row[0], row[size - 1] = BOS, EOS
        if kind in ("pair_classification", "multiple_choice"):
            row[size // 2] = BOS
    params = jax.jit(encoder.init, static_argnums=(1, 2, 3))(jax.random.key(0), MODEL, 50, 1)
    params[supervised.head_of(kind)] = supervised.init_head(kind, MODEL, 5, jax.random.key(1))
    logits = jax.jit(supervised.logits, static_argnums=(0, 2))
    expected = np.asarray(logits(kind, params, MODEL, tokens, np.zeros((300, 2), np.int32)))
    for devices, fsdp in ((1, 1), (8, 2)):
        config = Config(mesh=Mesh(fsdp=fsdp))
        mesh = make_mesh(config, jax.devices()[:devices])
        sharded = jax.device_put(params, shardings(params, mesh))
        actual = Predictor(kind, MODEL, mesh)(sharded, tokens, "")
        if kind == "question_answering":
            assert (actual[tokens == PAD] == -np.inf).all()
            np.testing.assert_allclose(actual[tokens != PAD], expected[tokens != PAD], atol=1e-5)
        elif kind == "tagging":
            assert (actual == expected.argmax(-1))[tokens != PAD].all()
        elif kind == "regression":
            np.testing.assert_allclose(actual, expected[:, 0], atol=1e-5)
        else:
            np.testing.assert_array_equal(actual, expected.argmax(-1))


@pytest.mark.parametrize("kind", ["classification", "question_answering", "multiple_choice"])
def test_logits_of_pairs_equal_those_of_rows_with_two_separators(kind):
    """The predictor adds a second separator to pairs, and removes its outputs from the results."""
    rng = np.random.default_rng(1)
    rows, doubled = [], []
    for _ in range(20):
        row, doubled_row = [], []
        for _ in range(2 if kind == "multiple_choice" else 1):
            first, second = (rng.integers(4, 50, rng.integers(0, 9)).tolist() for _ in range(2))
            row += [BOS, *first, EOS, *second, EOS]
            doubled_row += [BOS, *first, EOS, EOS, *second, EOS]
        rows.append(row)
        doubled.append(doubled_row)
    rows[3] = doubled[3] = [BOS, 7, EOS] * (2 if kind == "multiple_choice" else 1)  # not a pair
    tokens, doubled_tokens = (np.full((20, 40), PAD, np.int32) for _ in range(2))
    for number in range(20):
        tokens[number, : len(rows[number])] = rows[number]
        doubled_tokens[number, : len(doubled[number])] = doubled[number]
    params = jax.jit(encoder.init, static_argnums=(1, 2, 3))(jax.random.key(0), MODEL, 50, 1)
    params[supervised.head_of(kind)] = supervised.init_head(kind, MODEL, 5, jax.random.key(1))
    expected = np.asarray(
        supervised.logits(kind, params, MODEL, doubled_tokens, np.zeros((20, 2), np.int32))
    )
    mesh = make_mesh(Config(), jax.devices()[:1])
    actual = Predictor(kind, MODEL, mesh, separators=2, whole=True)(params, tokens, "")
    if kind != "question_answering":
        np.testing.assert_allclose(actual, expected, atol=1e-5)
        return
    assert actual.shape == (20, 40, 2)
    for number, row in enumerate(rows):
        row_logits = expected[number, : len(doubled[number])]
        if len(doubled[number]) > len(row):
            row_logits = np.delete(row_logits, row.index(EOS) + 1, 0)
        np.testing.assert_allclose(actual[number, : len(row)], row_logits, atol=1e-5)
        assert (actual[number, len(row) :] == -np.inf).all()
