"""Flax modules as pure functions of their parameters."""

from typing import Any

import flax.linen as nn

Params = dict[str, Any]
"""Parameters by name: arrays, or nested dicts of this kind."""


def run(module: nn.Module, params: Params, *arguments: Any) -> Any:
    """Applies a module with these parameters to its arguments."""
    return module.apply({"params": params}, *arguments)
