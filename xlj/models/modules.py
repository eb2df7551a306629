"""Flax modules as pure functions of their parameters."""

from typing import Any

import flax.linen as nn

Params = dict[str, Any]
"""Parameters by name: arrays, or such dicts again."""


def run(module: nn.Module, params: Params, *arguments: Any) -> Any:
    """What a module makes of its arguments; only the module knows the types of either."""
    return module.apply({"params": params}, *arguments)
