"""The costs that Pallas kernels state, by the shapes of a call.

A compiled program does not contain the operations of a kernel. But the traced program has the
kernel's `cost_estimate`, and both programs have the kernel's name and the shapes of its arguments.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from jax.extend.core import Jaxpr, jaxprs_in_params

from xlj.models.attention.interface import Cost


class Call(NamedTuple):
    """A call of a kernel, as traced and compiled programs have it."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    """Of the arguments."""


def stated_costs(traced: Jaxpr) -> dict[Call, Cost]:
    """Returns the cost that each kernel of a traced program states.

    Raises:
      ValueError: if a kernel states no cost, or states two costs for arguments of equal shapes.
    """
    costs: dict[Call, Cost] = {}
    for equation in _kernels(traced):
        name, stated = equation.params["name"], equation.params["cost_estimate"]
        if stated is None:
            raise ValueError(f"the Pallas kernel {name} states no cost; set its cost_estimate")
        call = Call(name, tuple(argument.aval.shape for argument in equation.invars))
        cost = Cost(stated.flops, stated.bytes_accessed)
        if costs.setdefault(call, cost) != cost:
            raise ValueError(f"two Pallas kernels {name} state different costs; rename one of them")
    return costs


def _kernels(traced: Jaxpr) -> Iterator[Any]:
    """Yields the equations of a program that call a Pallas kernel."""
    for equation in traced.eqns:
        if equation.primitive.name == "pallas_call":
            yield equation
        else:
            for inner in jaxprs_in_params(equation.params):
                yield from _kernels(inner)
