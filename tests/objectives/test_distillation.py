"""Distillation against NumPy. The teacher never changes and has no dropout."""

import dataclasses

import chex
import jax
import numpy as np
from random_rows import CORPUS, rows_of
from references.bitext import distilled
from references.encoder import float64

from xlj.objectives.distillation import loss as distillation
from xlj.objectives.distillation.options import Distillation

OPTIONS = Distillation(language="de", weight=3.0)


def test_the_whole_step_equals_numpy(full_model, params_of, keys_of, step_of):
    objective = distillation.objective("distillation", OPTIONS, full_model, CORPUS)
    params, teacher = params_of(full_model, objective), params_of(full_model, objective, seed=5)
    rows = rows_of("text", count=60)
    state = objective.init_state(teacher | {"prediction_head": teacher["layers"]})
    parts = {"embeddings", "layers", "position_bias"}
    assert set(state["teacher"]) == parts | ({"final_norm"} if full_model.norm != "post" else set())
    outputs = step_of(objective, params, rows, keys_of(rows), state)
    _, _, losses, counts, next_state = outputs
    actual = losses["distillation"]
    sums, expected = distilled(
        float64(params), float64(teacher), full_model, rows["tokens"], rows["languages"], language=1
    )
    np.testing.assert_allclose(actual.sum, sums, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(actual.count, expected)
    np.testing.assert_array_equal(counts["distillation"], expected)
    assert (expected == 0).any() and (expected > 0).any() and not np.asarray(actual.correct).any()
    chex.assert_trees_all_equal(next_state, state)
    assert objective.losses["distillation"].weight == 3


def test_only_the_student_has_dropout(model, params_of, keys_of):
    model = dataclasses.replace(model, dropout=0.3)
    objective = distillation.objective("distillation", OPTIONS, model, CORPUS)
    params, rows = params_of(model, objective), rows_of("text", count=60)
    inputs, state = objective.corrupt(rows, keys_of(rows)), objective.init_state(params)
    german = np.asarray(rows["languages"][:, 0]) == 1
    for keys, differs in ((None, False), (keys_of(rows), True)):
        sums = objective.loss(params, state, inputs, keys)["distillation"].sum
        assert (np.asarray(sums)[german] > 0.1).all() == differs
        assert (np.asarray(sums)[~german] == 0).all()
        assert differs or (np.asarray(sums) == 0).all()


def test_no_gradient_reaches_the_teacher(model, params_of, keys_of):
    objective = distillation.objective("distillation", OPTIONS, model, CORPUS)
    params, rows = params_of(model, objective), rows_of("text", count=60)
    inputs = objective.corrupt(rows, keys_of(rows))

    def loss(teacher):
        losses = objective.loss(params, {"teacher": teacher}, inputs, None)["distillation"]
        return losses.sum.sum()

    teacher = params_of(model, objective, seed=5)
    value, gradient = jax.jit(jax.value_and_grad(loss))(teacher)
    assert value > 1 and not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(gradient))
