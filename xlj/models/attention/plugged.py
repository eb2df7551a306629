"""A user's attention function, which `model.attention=module:function` names."""

import dataclasses

import jax

from xlj.config.user_code import function_of
from xlj.contracts.arrays import check
from xlj.models.attention import interface
from xlj.models.attention.interface import Operands, Request


@dataclasses.dataclass(frozen=True)
class Plugged(interface.Implementation):
    """The implementation of attention by a user's function.

    The function maps (query, key, value, mask) to the output of `Implementation.attend`, and JAX
    can differentiate it. `attention_checks.check_attention` tests it.

    Attributes:
      name: `module:function`.
    """

    name: str

    def __post_init__(self) -> None:
        function_of(self.name, "model.attention")  # raises an error before any work

    def why_not(self, request: Request) -> str | None:
        """Returns why the function cannot compute a request; None if it can."""
        if request.has_bias:
            return "your function takes no position bias (model.position_bias)"
        if request.has_dropout:
            return "your function has no dropout (model.attention_dropout)"
        return None

    def attend(self, operands: Operands) -> jax.Array:
        """Calls the function, and checks the shape and the dtype of its output."""
        query = operands.query
        operands.check(query.shape[1])
        assert operands.bias is None and not operands.rate, "refused by why_not"
        function = function_of(self.name, "model.attention")
        output = function(query, operands.key, operands.value, operands.mask)
        shape = ", ".join(map(str, query.shape))
        check(self.name, output=(f"{query.dtype} [{shape}]", output))
        return output
