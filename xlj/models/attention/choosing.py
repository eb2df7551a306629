"""The ordered list of implementations of attention, and the choice for each kind of layers.

The list includes a user's attention function, which `model.attention=module:function` names.
"""

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import jax

from xlj.config import ConfigError, Model
from xlj.config.sections import ATTENTION
from xlj.config.user_code import function_of
from xlj.contracts.arrays import check
from xlj.models import pattern
from xlj.models.attention import blocks, chunks, cudnn, interface, kernels, reference, tpu, triton
from xlj.models.attention.interface import Implementation, Operands, Request, request_of

IMPLEMENTATIONS: Mapping[str, Implementation] = {
    "triton": kernels.Fused(triton),
    "tpu": kernels.Fused(tpu),
    "cudnn": cudnn.CuDnn(),
    "blocks": blocks.LocalBlocks(),
    "chunks": chunks.QueryChunks(),
    "dense": reference.Dense(),
}
"""By name, in the order in which `model.attention=auto` asks them. Kernels come first, because they
are fastest where `why_slower` of their module cites no other measurement. Then come the
implementations that write the fewest scores to memory."""


class Choice(NamedTuple):
    """The implementation for a request.

    Attributes:
      refusals: why the implementations that were asked before were not chosen, by name.
    """

    name: str
    implementation: Implementation
    refusals: Mapping[str, str]


def choose(attention: str, request: Request) -> Choice:
    """Returns the first implementation that can compute a request.

    Args:
      attention: the value of `model.attention`: names in the order in which they are asked, with
        commas between them. `auto` means the whole list, without those that are slower.

    Raises:
      ConfigError: if none of them can compute the request.
    """
    refusals: dict[str, str] = {}
    for entry in attention.split(","):
        for name in ATTENTION[1:] if entry == "auto" else (entry,):
            implementation = IMPLEMENTATIONS.get(name) or Plugged(name)
            reason = implementation.why_slower(request) if entry == "auto" else None
            if (reason := reason or implementation.why_not(request)) is None:
                return Choice(name, implementation, refusals)
            refusals[name] = reason
    kind = "full" if request.window is None else "local"
    raise ConfigError(
        f"model.attention={attention} cannot compute {kind} attention: {_listed(refusals)}; add "
        "auto at the end for xlj's other implementations"
    )


def choose_for(model: Model, is_local: bool, length: int) -> Choice:
    """Returns the choice for a kind of layers, on the devices of the traced program.

    Args:
      length: of a row, in tokens.

    Raises:
      ConfigError: if no implementation of `model.attention` can compute these layers.
    """
    return choose(model.attention, request_of(model, is_local, length))


def report(model: Model, lengths: Iterable[int]) -> list[str]:
    """Returns the implementation of each kind of layers, and why others were not used.

    A text of more than 100 characters has several lines.

    Args:
      lengths: the lengths of rows, in tokens.

    Raises:
      ConfigError: if no implementation of `model.attention` can compute some layers.
    """
    lines: dict[tuple[str, str], list[str]] = {}
    for length in sorted(set(lengths)):
        for is_local in sorted({kind.is_local for kind in pattern.kinds(model, model.layers)}):
            name, _, refusals = choose_for(model, is_local, length)
            choice = f"{name} in {model.dtype}" + (f" ({_listed(refusals)})" if refusals else "")
            kind = "local" if is_local else "full"
            lines.setdefault((kind, choice), []).append(f"{length:,}")
    texts = (
        f"attention of {kind} layers, rows of {' and '.join(of)} tokens: {choice}"
        for (kind, choice), of in lines.items()
    )
    return [textwrap.fill(text, 100, subsequent_indent="    ") for text in texts]


def _listed(refusals: Mapping[str, str]) -> str:
    return "; ".join(f"not {name}: {reason}" for name, reason in refusals.items())


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
