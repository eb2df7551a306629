"""Table of the families of encoders, which users can extend, and their options of `model`."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import ml_collections

from xlj.config.fields import ConfigError, Value, suggestion
from xlj.config.user_code import function_of

_REGISTERED = {
    "xlm_r": "xlj.families.xlm_r:XlmR",
    "modernbert": "xlj.families.modernbert:ModernBert",
    "eurobert": "xlj.families.eurobert:EuroBert",
    "gte": "xlj.families.gte:Gte",
}


def register_family(name: str, implementation: str) -> None:
    """Registers a family of encoders under a name for `model.family`.

    Args:
      implementation: `module:function`, where the function takes no arguments and returns a
        `families.Family`.

    Raises:
      ValueError: if a different family is registered under this name.
    """
    if _REGISTERED.setdefault(name, implementation) != implementation:
        raise ValueError(f"a family {name} is already registered: {_REGISTERED[name]}")


def registered_families() -> Mapping[str, str]:
    """Returns the registered families by name: xlj's families first, then users' families."""
    return _REGISTERED


@cache
def _load(implementation: str) -> Any:
    return function_of(implementation, "model.family")()


def load(name: str) -> Any:
    """Returns a registered `families.Family`.

    Raises:
      ConfigError: if there is no such family, or its module cannot be imported.
    """
    if name not in _REGISTERED:
        raise ConfigError(
            f"model.family={name}: the families are {', '.join(_REGISTERED)}"
            f"{suggestion(name, _REGISTERED)}"
        )
    return _load(_REGISTERED[name])


def options_of(family: str) -> dict[str, Value]:
    """Returns the options of `model` that distinguish families, with the values of this family.

    Raises:
      ConfigError: if there is no such family.
    """
    names = {name for other in _REGISTERED for name in load(other).options}
    return {"family": family} | load(family).values(names)


def set_family(config: ml_collections.ConfigDict, family: str) -> None:
    """Sets the options of a family in a recipe's `model`.

    Raises:
      ConfigError: if there is no such family.
    """
    for name, value in options_of(family).items():
        config.model[name] = ",".join(value) if isinstance(value, tuple) else value
