"""Matrix products of float32 request full precision, which is not the default of GPUs and TPUs."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from every_objective import OBJECTIVES, objective_and_rows
from jax.extend.core import jaxprs_in_params


def products(jaxpr):
    """Yields the dtypes, precision and traceback of each matrix product, also in loops and
    kernels."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            types = {each.aval.dtype for each in equation.invars}
            yield types, equation.params["precision"], equation.source_info.traceback
        for inner in jaxprs_in_params(equation.params):
            yield from products(inner)


@pytest.mark.parametrize("attention", ["dense", "triton"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_product_of_float32_has_the_highest_precision(
    name, attention, full_model, params_of, keys_of
):
    """Tests corruption, targets, loss, gradient and the next state."""
    model = dataclasses.replace(full_model, attention=attention)
    objective, rows = objective_and_rows(name, model)
    keys = keys_of(rows)

    def step(params):
        state = objective.init_state(params)
        inputs = objective.targets(
            params, state, objective.corrupt(rows, keys), lambda function, of: function(of)
        )

        def total(params):
            losses = objective.loss(params, state, inputs, keys)
            return sum(each.sum.sum() for each in losses.values())

        return jax.grad(total)(params), objective.update(state, params, inputs)

    params = jax.eval_shape(lambda: params_of(model, objective))
    all_products = list(products(jax.make_jaxpr(step)(params).jaxpr))
    assert len(all_products) > 20
    highest = (jax.lax.Precision.HIGHEST,) * 2
    for types, precision, traceback in all_products:
        assert types != {jnp.dtype("float32")} or precision == highest, str(traceback)
