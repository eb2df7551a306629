"""Flax modules as pure functions of their parameters."""

from typing import Any

import flax.linen as nn
import jax

from xlj.contracts.arrays import check
from xlj.sharding.trees import Params


def run(module: nn.Module, params: Params, *arguments: Any) -> Any:
    """Calls a module with these parameters and arguments, and returns its result."""
    return module.apply({"params": params}, *arguments)


def init_head(function: str, head: nn.Module, rng: jax.Array, *inputs: jax.Array | None) -> Params:
    """Returns new parameters of a head.

    Args:
      function: the name of the caller, for error messages.
      inputs: arguments of the head's `__call__`, of which only shapes and dtypes matter.
    """
    check(function, rng=("key []", rng))
    params: Params = head.init(rng, *inputs)["params"]
    return params
