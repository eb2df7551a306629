"""The count of operations is that of the matrix products that the encoder really does."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import jaxprs_in_params

from xlj.config import Model
from xlj.models import encoder
from xlj.objectives.flops import of_layers

TINY = Model(layers=3, hidden=32, heads=4, intermediate=48, positions=66)


def products(jaxpr):
    """Operations of all matrix products in a program, those in its loops included."""
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


@pytest.mark.parametrize("bias", ["none", "t5", "gated"])
def test_the_count_is_that_of_the_layers_products(bias):
    model = dataclasses.replace(TINY, position_bias=bias)
    params = encoder.init(jax.random.key(0), model, 50, 2)
    ids = jnp.zeros((2, 20), jnp.int32)
    inputs = encoder.Inputs(ids, ids, ids, ids)
    traced = jax.make_jaxpr(lambda p: encoder.apply(p, model, inputs))(params)
    assert products(traced.jaxpr) == of_layers(model, model.layers, 2, 20)
