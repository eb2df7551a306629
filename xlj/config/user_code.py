"""Functions of the user's own, which a config names as `module:function`."""

import importlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from xlj.config.fields import ConfigError


@lru_cache(maxsize=8)
def function_of(name: str, key: str) -> Callable[..., Any]:
    """The function `module:function` that a key names; a `ConfigError` if there is none."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key}={name}: {error}") from error
    except Exception as error:  # of the module's own
        raise ConfigError(f"{key}={name}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ConfigError(f"{key}={name} is no function")
    return found
