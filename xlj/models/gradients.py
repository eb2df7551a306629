"""Functions whose gradient is written by hand."""

from collections.abc import Callable
from typing import TypeVar

import jax

from xlj.contracts.arrays import PyTree

Found = TypeVar("Found")
Saved = TypeVar("Saved")


def with_gradient(
    forward: Callable[..., tuple[Found, Saved]],
    backward: Callable[..., PyTree],
    static: tuple[int, ...] = (),
) -> Callable[..., Found]:
    """The function that `forward` computes, differentiated as `jax.custom_vjp` says.

    Args:
      forward: of the function's arguments, its result and what is kept for the backward pass.
      backward: (the static arguments, what was kept, the gradient of the result) -> the gradient of
        each argument that is not static.
      static: which arguments are no arrays, by place.
    """

    def function(*arguments: PyTree) -> Found:
        return forward(*arguments)[0]

    differentiable = jax.custom_vjp(function, nondiff_argnums=static)
    differentiable.defvjp(forward, backward)
    return differentiable
