"""The formulas for the number of operations against the encoder's programs and plain formulas."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import jaxprs_in_params
from random_rows import CORPUS, SIZE
from references import flops as reference

from xlj.config import SUPERVISED, Model
from xlj.config.objectives.btmlm import BackTranslation
from xlj.config.objectives.distillation import Distillation
from xlj.config.objectives.dwa import WordAlignment
from xlj.config.objectives.mlm import Masking
from xlj.config.objectives.retrieval import Retrieval
from xlj.config.objectives.rtd import ReplacedTokenDetection
from xlj.config.objectives.xlco import Contrast
from xlj.models import encoder
from xlj.objectives import (
    btmlm,
    camlm,
    distillation,
    dwa,
    mlm,
    retrieval,
    rtd,
    supervised,
    xlco,
)
from xlj.objectives.flops import of_layers, of_predictions

TINY = Model(layers=3, hidden=32, heads=4, intermediate=48, positions=66)


def products(jaxpr):
    """Counts the operations of all matrix products in a program, including loops."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            depth = math.prod(shape[axis] for axis in contracted)
            total += 2 * depth * equation.outvars[0].aval.size
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += repeats * sum(map(products, jaxprs_in_params(equation.params)))
    return total


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"position_bias": "t5"},
        {"position_bias": "gated"},
        {"feed_forward": "swiglu", "key_value_heads": 2, "norm": "embeddings"},
        {"local_attention": 200, "full_attention_every": 2},  # the window covers the row
    ],
)
def test_operations_of_layers_equal_the_products_in_their_program(options):
    model = dataclasses.replace(TINY, **options)
    params = encoder.init(jax.random.key(0), model, 50, 2)
    ids = jnp.zeros((2, 20), jnp.int32)
    inputs = encoder.Inputs(ids, ids, ids, ids)
    traced = jax.make_jaxpr(lambda p: encoder.apply(p, model, inputs))(params)
    assert products(traced.jaxpr) == of_layers(model, model.layers, 2, 20).total


def test_operations_of_each_objective_equal_the_reference(full_model):
    rows, length, rate = 6, 46, 0.3

    def total(module, options):
        objective = module.objective("distillation", options, full_model, CORPUS)
        return objective.flops(rows, length).total

    masked = {"mask_rate": rate}
    of_tokens = (full_model, SIZE, rows, length, rate)
    expected = reference.mlm(*of_tokens)
    assert total(mlm, Masking(**masked)) == expected
    assert total(camlm, Masking(**masked)) == expected
    options = BackTranslation(**masked)
    assert total(btmlm, options) == reference.btmlm(*of_tokens)
    options = ReplacedTokenDetection(generator_layers=2, **masked)
    assert total(rtd, options) == reference.rtd(*of_tokens, 2)
    for which, queries in (("masked", reference.slots(rate, length)), ("aligned", length)):
        options = WordAlignment(queries=which, label_layer=1, **masked)
        assert total(dwa, options) == reference.dwa(*of_tokens, 1, queries)
    for mixup, read in ((True, length), (False, length // 2)):
        options = Contrast(layer=1, queue=40, mixup=mixup)
        assert total(xlco, options) == reference.xlco(full_model, rows, read, 1, 40)
    options = Retrieval(layer=1)
    assert total(retrieval, options) == reference.retrieval(full_model, rows, length, 1)
    options = Distillation(language="de")
    assert total(distillation, options) == reference.distillation(full_model, rows, length)
    options = SUPERVISED["tagging"](batch_size=rows, length=length, labels=("a", "b"))
    assert total(supervised, options) == reference.supervised(full_model, rows, length)


def test_layers_that_are_not_set_are_at_two_thirds_of_the_depth(full_model):
    model = dataclasses.replace(full_model, layers=6)
    for module, options in (
        (dwa, WordAlignment()),
        (xlco, Contrast()),
        (retrieval, Retrieval()),
    ):
        default, fourth, other = (
            module.objective("x", dataclasses.replace(options, **layer), model, CORPUS).flops(4, 32)
            for layer in layers_of(options)
        )
        assert default == fourth != other


def layers_of(options):
    name = "label_layer" if hasattr(options, "label_layer") else "layer"
    return {}, {name: 4}, {name: 5}


def test_operations_are_counted_by_part_of_the_model():
    model = dataclasses.replace(TINY, position_bias="gated")
    attention = 3 * 2 * 5 * reference.product(11, 32, 11)
    linear = reference.layers(model, 3, 5, 11) - attention
    actual = of_layers(model, 3, 5, 11)
    assert dataclasses.astuple(actual) == (linear, attention, 0, 0)
    vocabulary = reference.predictions(model, 60, 7)
    assert dataclasses.astuple(of_predictions(model, 60, 7)) == (0, 0, vocabulary, 0)
    both = 2 * (actual + of_predictions(model, 60, 7))
    assert dataclasses.astuple(both) == (2 * linear, 2 * attention, 2 * vocabulary, 0)
