"""Flax modules as pure functions of their parameters."""

from typing import Any

import flax.linen as nn

Params = dict[str, Any]
"""Parameters by name. A value is an array, or another dict of parameters."""


def run(module: nn.Module, params: Params, *arguments: Any) -> Any:
    """Calls a module with these parameters and arguments, and returns its result."""
    return module.apply({"params": params}, *arguments)
