"""Discards what libraries write to stderr, for example while they import TensorFlow."""

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

    Args:
      name: the module of the library.
      data: describes the data that needs the library, for the error.

    Raises:
      ConfigError: if the library is not installed; the message contains a remedy.
    """
    if importlib.util.find_spec(name) is not None:
        return
    first = ".".join(map(str, FIRST_WITHOUT_SEQIO))
    reason = f"is not installed; pip install {name.replace('_', '-')}"
    if sys.version_info >= FIRST_WITHOUT_SEQIO:
        reason = (
            f"cannot be installed on Python {first} and later (seqio needs tensorflow-text, which "
            f"has no release for these versions); use a Python version before {first}"
        )
    raise ConfigError(f"reading {data} needs {name}, which {reason}, or write the data to files")


def import_quietly(name: str, data: str = "this data") -> Any:
    """Imports a library that imports TensorFlow, and discards the messages of both on stderr.

    Args:
      name: the module of the library.
      data: describes the data that needs the library, for errors.

    Raises:
      ConfigError: if the import fails; the message contains the reason.
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
    """Discards all that is written to stderr in the block, also by C++ and Rust libraries."""
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
