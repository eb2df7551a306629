"""Dropout in traced programs: all passes with a gradient have dropout, targets have none."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from every_objective import OBJECTIVES, objective_and_rows
from jax.extend.core import jaxprs_in_params
from random_rows import CORPUS, SIZE, tokens_of

from xlj.models import encoder
from xlj.models.segments import whole_examples

LAYERS = {
    **dict.fromkeys(("mlm", "camlm", "btmlm", "dwa", "distillation"), [3]),
    **{"rtd": [2, 3], "xlco": [1], "retrieval": [2, 2], "word_hmm": [1, 1]},
    "word_agreement": [2, 2],
}
"""The number of layers of each forward pass, by objective."""


def is_mask(equation):
    """Returns whether an equation takes 24 bits of hashes, the last step of a dropout mask."""
    if equation.primitive.name != "shift_right_logical":
        return False
    bits, by = equation.invars
    return bits.aval.dtype == jnp.int32 and getattr(by, "val", None) == 8


def count_masks(jaxpr):
    """Counts the masks that a program computes, in all iterations of its loops."""
    total = 0
    for equation in jaxpr.eqns:
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += is_mask(equation)
        total += repeats * sum(map(count_masks, jaxprs_in_params(equation.params)))
    return total


def count_masks_of(function, *arguments):
    return count_masks(jax.make_jaxpr(function)(*arguments).jaxpr)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_pass_of_a_loss_has_dropout(name, full_model, keys_of):
    model = dataclasses.replace(full_model, dropout=0.2, attention_dropout=0.1)
    objective, rows = objective_and_rows(name, model)
    keys = keys_of(rows)

    @jax.eval_shape
    def abstract():
        params = encoder.init(jax.random.key(0), model, SIZE, len(CORPUS.languages))
        params |= {part: make(jax.random.key(1)) for part, make in objective.parts.items()}
        return params, objective.init_state(params), objective.corrupt(rows, keys)

    def targets(params, state, inputs):
        return objective.targets(params, state, inputs, lambda function, inputs: function(inputs))

    def loss(rngs):
        return lambda params, state, inputs: objective.loss(params, state, inputs, rngs)

    params, state, inputs = abstract
    inputs = jax.eval_shape(targets, params, state, inputs)
    tokens = rows["tokens"] if "tokens" in rows else tokens_of(rows)
    encoder_inputs = whole_examples(model, tokens, rows["languages"])
    expected = sum(
        count_masks_of(
            lambda p, n=n: encoder.apply(p, model, encoder_inputs, keys, layers=n), params
        )
        for n in LAYERS[name]
    )
    assert count_masks_of(loss(None), params, state, inputs) == 0
    assert count_masks_of(loss(keys), params, state, inputs) == expected > 0
