"""User functions that a config names as `module:function`."""

import importlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from xlj.config.fields import ConfigError


@lru_cache(maxsize=8)
def function_of(name: str, key: str) -> Callable[..., Any]:
    """Imports the function `module:function` that a key names.

    Raises:
      ConfigError: if the module or function does not exist, or importing the module fails.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigError(f"{key}={name} is not a function; name one as module:function")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key}={name}: {error}") from error
    except Exception as error:  # raised by the user's module
        raise ConfigError(f"{key}={name}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ConfigError(f"{key}={name} is not a function; name one as module:function")
    return function
