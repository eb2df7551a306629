"""User functions that a config names as `module:function`."""

import importlib
import inspect
from collections.abc import Callable, Sequence
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


def check_arguments(name: str, key: str, arguments: Sequence[str]) -> None:
    """Imports the function that a key names, and checks that it can be called.

    Args:
      arguments: the names of the positional arguments.

    Raises:
      ConfigError: if `function_of` raises it, or the function does not take these arguments.
    """
    function = function_of(name, key)
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ConfigError(
            f"{key}={name} must take the arguments ({', '.join(arguments)}): {error}"
        ) from None
    except ValueError:  # functions written in C have no signature
        pass
