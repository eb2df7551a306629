"""Functions with hand-written gradients."""

from collections.abc import Callable
from typing import TypeVar

import jax

from xlj.contracts.arrays import PyTree

Result = TypeVar("Result")
Saved = TypeVar("Saved")


def with_gradient(
    forward: Callable[..., tuple[Result, Saved]],
    backward: Callable[..., PyTree],
    static: tuple[int, ...] = (),
) -> Callable[..., Result]:
    """Builds a function from its forward and backward pass, with `jax.custom_vjp`.

    Args:
      forward: (arguments) -> (result, values saved for the backward pass).
      backward: (static arguments, saved values, gradient of the result) -> tuple of the gradients
        of the other arguments. None is the gradient of an argument without gradient.
      static: indices of the arguments that are not arrays.

    Returns:
      The function (arguments) -> result.
    """

    def function(*arguments: PyTree) -> Result:
        return forward(*arguments)[0]

    differentiable = jax.custom_vjp(function, nondiff_argnums=static)
    differentiable.defvjp(forward, backward)
    return differentiable
