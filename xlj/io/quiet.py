"""Silences libraries that write to stderr; imports TensorFlow and its dependents that way."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from xlj.config import ConfigError

FIRST_WITHOUT_SEQIO = (3, 14)
"""The first Python version on which xlj is installed without seqio, TensorFlow and TFDS."""


def require(name: str, data: str) -> None:
    """Checks that a library is installed, without importing it.

    Raises:
      ConfigError: if it is missing; the message names the `data` that needs it, and a remedy.
    """
    if importlib.util.find_spec(name) is not None:
        return
    first = ".".join(map(str, FIRST_WITHOUT_SEQIO))
    reason = f"is not installed; pip install {name.replace('_', '-')}"
    if sys.version_info >= FIRST_WITHOUT_SEQIO:
        reason = (
            f"cannot be installed on Python {first} and later (seqio needs tensorflow-text, which "
            f"has no release for it); use a Python before {first}"
        )
    raise ConfigError(f"reading {data} needs {name}, which {reason}, or write the data to files")


def import_quietly(name: str, data: str = "this data") -> Any:
    """Imports a library that imports TensorFlow, without its messages on stderr.

    Raises:
      ConfigError: if the import fails; the message names the `data` and the reason.
    """
    require(name, data)
    if name in sys.modules:
        return sys.modules[name]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        with quiet():
            return importlib.import_module(name)
    except Exception as error:  # protobuf raises its own type if versions are incompatible
        hint = "; pip install 'sentencepiece<0.2.3'" if "sentencepiece_model" in str(error) else ""
        raise ConfigError(
            f"reading {data} needs {name}, which cannot be imported here "
            f"({type(error).__name__}: {error}){hint}"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Discards what libraries write to stderr in the block, bypassing Python."""
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
