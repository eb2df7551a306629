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
    """Returns the function of `forward` with the gradient of `backward`, by `jax.custom_vjp`.

    Args:
      forward: (the function's arguments) -> its result, and the values saved for the backward pass.
      backward: (static arguments, saved values, gradient of the result) -> the gradient of each
        argument that is not static.
      static: indices of the arguments that are not arrays.
    """

    def function(*arguments: PyTree) -> Result:
        return forward(*arguments)[0]

    differentiable = jax.custom_vjp(function, nondiff_argnums=static)
    differentiable.defvjp(forward, backward)
    return differentiable
