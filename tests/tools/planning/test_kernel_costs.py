"""Costs that Pallas kernels state are found in traced programs; programs are never run here."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from xlj.models.attention.interface import Cost
from xlj.tools.planning.kernel_costs import Call, stated_costs


def kernel(x, flops, size=8, name="double"):
    cost = flops and pl.CostEstimate(flops=flops, transcendentals=0, bytes_accessed=size)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        lambda x_ref, y_ref: None, out_shape=shape, cost_estimate=cost, interpret=True, name=name
    )(x)


def costs_of(function):
    return stated_costs(jax.make_jaxpr(function)(jnp.zeros((3, 4))).jaxpr)


def test_kernels_in_loops_branches_and_recomputation_are_found():
    """The same call may occur several times."""

    def program(x):
        x = jax.lax.fori_loop(0, 3, lambda _, x: kernel(x, 5), x)
        x = jax.lax.cond(x.sum() > 0, lambda x: kernel(x, 6, name="other"), jnp.sin, x)
        x = jax.jit(jax.checkpoint(lambda x: kernel(x, 5)))(x)
        return kernel(x[:2], 4)

    assert costs_of(program) == {
        Call("double", ((3, 4),)): Cost(5, 8),
        Call("other", ((3, 4),)): Cost(6, 8),
        Call("double", ((2, 4),)): Cost(4, 8),
    }


def test_a_kernel_without_a_cost_is_an_error():
    with pytest.raises(ValueError, match="double states no cost"):
        costs_of(lambda x: kernel(x, None))


def test_two_costs_for_one_call_are_an_error():
    with pytest.raises(ValueError, match="two Pallas kernels double"):
        costs_of(lambda x: kernel(kernel(x, 5), 5, size=9))
